package contract;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.PrivilegedExceptionAction;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FsShell;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.Tool;
import org.apache.hadoop.util.ToolRunner;

/**
 * Runs commands of `hdfs dfs` (and `distcp`) against a cluster, in one JVM: a JSON array of words a line in, a JSON
 * object with status and output a line out.
 *
 * Arguments: the file with commands, the file for results, then name=value of the configuration.
 */
public class ShellScript {
  public static void main(String[] arguments) throws Exception {
    ObjectMapper json = new ObjectMapper();
    PrintStream out = System.out, err = System.err;
    List<String> results = new ArrayList<>();
    for (String line : Files.readAllLines(Path.of(arguments[0]))) {
      String[] words = json.readValue(line, String[].class);
      Configuration conf = new Configuration();
      for (int at = 2; at < arguments.length; at++) {
        String[] setting = arguments[at].split("=", 2);
        conf.set(setting[0], setting[1]);
      }
      ByteArrayOutputStream said = new ByteArrayOutputStream(), complained = new ByteArrayOutputStream();
      System.setOut(new PrintStream(said, true, StandardCharsets.UTF_8));
      System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
      int status;
      try {
        status = as(words).doAs((PrivilegedExceptionAction<Integer>) () -> run(conf, withoutUser(words)));
      } catch (Exception fault) {
        System.err.println(fault);
        status = 255;
      } finally {
        System.setOut(out);
        System.setErr(err);
      }
      Map<String, Object> result = new LinkedHashMap<>();
      result.put("command", words);
      result.put("status", status);
      result.put("out", said.toString(StandardCharsets.UTF_8));
      result.put("err", complained.toString(StandardCharsets.UTF_8));
      results.add(json.writeValueAsString(result));
    }
    Files.write(Path.of(arguments[1]), results);
  }

  /** Whoever a first word like @alice names, or @oozie:alice for a service that acts for a user; else this process's user. */
  private static UserGroupInformation as(String[] words) throws Exception {
    if (!words[0].startsWith("@")) {
      return UserGroupInformation.getCurrentUser();
    }
    String[] names = words[0].substring(1).split(":");
    UserGroupInformation first = UserGroupInformation.createRemoteUser(names[0]);
    return names.length == 1 ? first : UserGroupInformation.createProxyUser(names[1], first);
  }

  private static String[] withoutUser(String[] words) {
    return words[0].startsWith("@") ? Arrays.copyOfRange(words, 1, words.length) : words;
  }

  private static int run(Configuration conf, String[] words) throws Exception {
    if (!words[0].equals("distcp")) {
      return ToolRunner.run(new FsShell(conf), words);
    }
    String[] rest = Arrays.copyOfRange(words, 1, words.length);
    Tool distcp = new org.apache.hadoop.tools.DistCp(conf, null);
    return ToolRunner.run(conf, distcp, rest);
  }
}
