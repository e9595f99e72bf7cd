package contract;

import java.io.File;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** A NameNode and three DataNodes of HDFS in one JVM. Prints its two URIs and ends with its standard input. */
public class HdfsPeer {
  public static void main(String[] arguments) throws Exception {
    Configuration conf = new HdfsConfiguration();
    conf.setBoolean("dfs.namenode.acls.enabled", true);
    // Some suites write blocks of 1 KiB.
    conf.setInt("dfs.namenode.fs-limits.min-block-size", 0);
    conf.set("hadoop.proxyuser.oozie.hosts", "127.0.0.1");
    conf.set("hadoop.proxyuser.oozie.users", "alice");
    conf.set("hadoop.proxyuser.elsewhere.hosts", "192.0.2.1");
    conf.set("hadoop.proxyuser.elsewhere.users", "*");
    conf.set("dfs.datanode.hostname", "127.0.0.1");
    MiniDFSCluster cluster = new MiniDFSCluster.Builder(conf, new File(arguments[0])).numDataNodes(3).build();
    try {
      cluster.waitActive();
      System.out.println(
          "webhdfs://127.0.0.1:" + cluster.getNameNode().getHttpAddress().getPort()
              + " hdfs://127.0.0.1:" + cluster.getNameNodePort());
      while (System.in.read() >= 0) {
        continue;
      }
    } finally {
      cluster.shutdown();
    }
  }
}
