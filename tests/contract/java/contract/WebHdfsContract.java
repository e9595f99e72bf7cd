package contract;

import java.net.URI;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractBondedFSContract;

/**
 * What `webhdfs://` and `hdfs://` promise, at a cluster that the property contract.uri names: the flags that HDFS sets
 * for itself.
 */
public class WebHdfsContract extends AbstractBondedFSContract {
  static final String URI_PROPERTY = "contract.uri";

  private static final String[] PROMISED = {
    "is-case-sensitive",
    "metadata_updated_on_hsync",
    "rejects-seek-past-eof",
    "rename-returns-false-if-dest-exists",
    "rename-returns-false-if-source-missing",
    "supports-append",
    "supports-atomic-directory-delete",
    "supports-atomic-rename",
    "supports-block-locality",
    "supports-concat",
    "supports-getfilestatus",
    "supports-hflush",
    "supports-hsync",
    "supports-seek",
    "supports-settimes",
    "supports-strict-exceptions",
    "supports-unix-permissions",
    "test.root-tests-enabled",
    "vector-io-early-eof-check",
  };

  public WebHdfsContract(Configuration conf) {
    super(conf);
    conf.set("fs.contract.test.fs." + getScheme(), uri().toString());
    for (String promise : PROMISED) {
      conf.setBoolean("fs.contract." + promise, true);
    }
    conf.setInt("fs.contract.test.random-seek-count", 200);
    setConf(conf);
  }

  @Override
  public String getScheme() {
    return uri().getScheme();
  }

  static URI uri() {
    return URI.create(System.getProperty(URI_PROPERTY));
  }
}
