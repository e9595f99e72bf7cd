// Stands before the class of this name that Spark's machine learning has each session load.
//
// That registers functions which no test uses, and has Scala reflect on itself for them, which takes each JVM as
// much processor time as a batch of a query. `java_classes` compiles this.

package org.apache.spark.sql.ml;

import org.apache.spark.sql.SparkSessionExtensionsProvider;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

public class InternalFunctionRegistration extends AbstractFunction1 implements SparkSessionExtensionsProvider {
    public Object apply(Object extensions) {
        return BoxedUnit.UNIT;
    }
}
