package matrix;

import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.*;
import org.apache.spark.sql.types.*;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** The JVM's form of transformWithState, of the query that `matrix_queries._Portrait` has in Python. */
public final class Portraits extends StatefulProcessor<String, Row, Row> {
    private static final long DAY_MS = 86_400_000;
    private transient ValueState<Long> rows;
    private transient ValueState<Long> fresh;
    private transient ListState<Long> seconds;
    private transient MapState<Long, Long> numbers;

    public static Dataset<Row> of(Dataset<Row> lines) {
        StructType columns = new StructType().add("key", "string").add("rows", "bigint").add("fresh", "bigint")
            .add("seconds", "bigint").add("numbers", "bigint");
        return lines.groupByKey((MapFunction<Row, String>) row -> row.getString(0), Encoders.STRING())
            .transformWithState(new Portraits(), TimeMode.ProcessingTime(), OutputMode.Update(), Encoders.row(columns));
    }

    @Override
    public void init(OutputMode mode, TimeMode time) {
        rows = getHandle().getValueState("rows", Encoders.LONG(), TTLConfig.NONE());
        fresh = getHandle().getValueState("fresh", Encoders.LONG(), new TTLConfig(java.time.Duration.ofDays(1)));
        seconds = getHandle().getListState("seconds", Encoders.LONG(), TTLConfig.NONE());
        numbers = getHandle().getMapState("numbers", Encoders.LONG(), Encoders.LONG(), TTLConfig.NONE());
    }

    @Override
    public Iterator<Row> handleInputRows(String key, Iterator<Row> arrived, TimerValues timers) {
        long count = 0;
        while (arrived.hasNext()) {
            Row row = arrived.next();
            count++;
            seconds.appendValue(row.getLong(2));
            numbers.updateValue(row.getLong(1), 1L);
        }
        rows.update((rows.exists() ? rows.get() : 0L) + count);
        fresh.update((fresh.exists() ? fresh.get() : 0L) + count);
        getHandle().registerTimer(timers.getCurrentProcessingTimeInMs() + DAY_MS);
        long sum = 0;
        for (Iterator<Long> each = seconds.get(); each.hasNext(); ) sum += each.next();
        Row seen = RowFactory.create(key, rows.get(), fresh.get(), sum, (long) numbers.keys().size());
        return CollectionConverters.asScala(java.util.List.of(seen).iterator());
    }
}
