import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.DatanodeReportType;

/**
 * The load of `load.py` by Hadoop's client: reads `OPERATION CLIENTS SECONDS COUNT MEBIBYTES`, answers `done COUNT
 * SECONDS`, and ends with its standard input.
 */
public class HadoopLoad {
  private static final int KEPT_FILES = 100;
  private static final long BLOCK_BYTES = 64L << 20;
  private static final short REPLICAS = 3;
  private static final byte[] SMALL = new byte[1024];
  private static final byte[] PIECE = new byte[1 << 20];

  private static DistributedFileSystem files;
  private static EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE);
  private static String top = "";

  private final int number;
  private final Map<String, Integer> made = new HashMap<>();
  private final byte[] buffer = new byte[1 << 20];

  private HadoopLoad(int number) {
    this.number = number;
  }

  public static void main(String[] arguments) throws Exception {
    files = (DistributedFileSystem) DistributedFileSystem.get(new URI(arguments[0]), new Configuration());
    int datanodes = Integer.parseInt(arguments[1]);
    if (arguments[2].equals("sync")) {
      flags.add(CreateFlag.SYNC_BLOCK);
      top = "/sync";
    }
    awaitCluster(datanodes);
    System.out.println("ready");
    List<HadoopLoad> clients = new ArrayList<>();
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String[] words = line.split(" ");
      while (clients.size() < Integer.parseInt(words[1])) {
        clients.add(new HadoopLoad(clients.size()));
      }
      atOnce(clients.subList(0, Integer.parseInt(words[1])), words);
    }
    System.exit(0);
  }

  private static void awaitCluster(int datanodes) throws Exception {
    long deadline = System.nanoTime() + 120_000_000_000L;
    while (true) {
      try {
        if (files.getDataNodeStats(DatanodeReportType.LIVE).length == datanodes) {
          files.mkdirs(new Path("/started"));
          return;
        }
      } catch (IOException away) {
        if (System.nanoTime() > deadline) {
          throw away;
        }
      }
      if (System.nanoTime() > deadline) {
        throw new IOException("not all DataNodes came");
      }
      Thread.sleep(100);
    }
  }

  private static void atOnce(List<HadoopLoad> clients, String[] words) throws Exception {
    double seconds = Double.parseDouble(words[2]);
    long times = Long.parseLong(words[3]);
    int mebibytes = Integer.parseInt(words[4]);
    AtomicLong count = new AtomicLong();
    List<Thread> threads = new ArrayList<>();
    long begun = System.nanoTime();
    for (HadoopLoad client : clients) {
      Thread thread = new Thread(() -> {
        long end = begun + (long) (Math.min(seconds, 1e6) * 1e9);
        long mine = 0;
        try {
          while (mine < times && System.nanoTime() < end && client.once(words[0], mebibytes)) {
            mine++;
          }
        } catch (Exception failure) {
          failure.printStackTrace();
          System.exit(1);
        }
        count.addAndGet(mine);
      });
      threads.add(thread);
      thread.start();
    }
    for (Thread thread : threads) {
      thread.join();
    }
    System.out.println("done " + count.get() + " " + (System.nanoTime() - begun) / 1e9);
  }

  /** Do it once; false when there is nothing left to do. */
  private boolean once(String operation, int mebibytes) throws IOException {
    switch (operation) {
      case "mkdir":
        files.mkdirs(path("/m/" + number + "/" + next("mkdir")));
        return true;
      case "create":
        write(path("/e/" + number + "/" + next("create")), new byte[0], 1);
        return true;
      case "rename":
        if (made("rename") == made("create")) {
          return false;
        }
        int renamed = next("rename");
        if (!files.rename(path("/e/" + number + "/" + renamed), path("/e/" + number + "/r" + renamed))) {
          throw new IOException("not renamed");
        }
        return true;
      case "delete":
        return made("delete") != made("rename") && delete("/e/" + number + "/r" + next("delete"));
      case "stat":
        files.getFileStatus(path("/k/" + ThreadLocalRandom.current().nextInt(KEPT_FILES)));
        return true;
      case "read":
        read("/k/" + ThreadLocalRandom.current().nextInt(KEPT_FILES), SMALL.length);
        return true;
      case "write":
        write(path("/w/" + number + "/" + next("write")), SMALL, 1);
        return true;
      case "list":
        if (files.listStatus(path("/listed")).length == 0) {
          throw new IOException("nothing is listed");
        }
        return true;
      case "keep":
        write(path("/k/" + next("keep")), SMALL, 1);
        return true;
      case "fill":
        files.mkdirs(path(String.format("/listed/%02d-%05d", number, next("fill"))));
        return true;
      case "write_large":
        write(path("/l/" + number), PIECE, mebibytes);
        return true;
      case "read_large":
        read("/l/" + number, (long) mebibytes << 20);
        return true;
      case "delete_large":
        return delete("/l/" + number);
      default:
        throw new IOException("no operation is called " + operation);
    }
  }

  private void write(Path path, byte[] piece, int count) throws IOException {
    FsPermission permission = FsPermission.getFileDefault();
    try (FSDataOutputStream sink =
        files.create(path, permission, flags, 65536, REPLICAS, BLOCK_BYTES, null, null)) {
      for (int n = 0; n < count; n++) {
        sink.write(piece);
      }
    }
  }

  private void read(String name, long length) throws IOException {
    long total = 0;
    try (FSDataInputStream source = files.open(path(name))) {
      for (int count = source.read(buffer); count >= 0; count = source.read(buffer)) {
        total += count;
      }
    }
    if (total != length) {
      throw new IOException(total + " of " + length + " bytes were read");
    }
  }

  private static boolean delete(String name) throws IOException {
    if (!files.delete(path(name), false)) {
      throw new IOException(name + " was not deleted");
    }
    return true;
  }

  private int next(String what) {
    return made.merge(what, 1, Integer::sum) - 1;
  }

  private int made(String what) {
    return made.getOrDefault(what, 0);
  }

  private static Path path(String name) {
    return new Path(files.getUri() + top + name);
  }
}
