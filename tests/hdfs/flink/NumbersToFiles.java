import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.DefaultRollingPolicy;

/**
 * Numbers from 0, keyed and counted, to a file sink whose files stay open over several checkpoints.
 *
 * <p>Arguments: the place of sink and checkpoints, how many numbers, how many of them a second, and the checkpoint to
 * go on from, or "new".
 */
public class NumbersToFiles {
    public static void main(String[] args) throws Exception {
        String place = args[0];
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "300ms");
        settings.setString("execution.checkpointing.dir", place + "/checkpoints");
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("execution.checkpointing.num-retained", "3");
        settings.setString("state.backend.type", "hashmap");
        settings.setString("execution.checkpointing.data-inline-threshold", "0b");
        settings.setString("restart-strategy.type", "none");
        if (!args[3].equals("new")) {
            settings.setString("execution.state-recovery.path", args[3]);
        }
        StreamExecutionEnvironment flink = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        DataGeneratorSource<Long> numbers = new DataGeneratorSource<Long>(
                number -> number,
                Long.parseLong(args[1]),
                RateLimiterStrategy.perSecond(Double.parseDouble(args[2])),
                Types.LONG);
        FileSink<String> files = FileSink.forRowFormat(new Path(place + "/sink"), new SimpleStringEncoder<String>())
                .withRollingPolicy(DefaultRollingPolicy.builder()
                        .withRolloverInterval(Duration.ofSeconds(3))
                        .withMaxPartSize(MemorySize.ofMebiBytes(1))
                        .build())
                .build();
        flink.fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers")
                .uid("numbers")
                .keyBy(number -> number % 10)
                .reduce((earlier, later) -> later)
                .uid("last")
                .map(number -> number + " of key " + number % 10)
                .returns(Types.STRING)
                .sinkTo(files)
                .uid("files");
        flink.execute("numbers to files");
        System.out.println("finished");
    }
}
