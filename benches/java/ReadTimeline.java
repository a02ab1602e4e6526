import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.avro.model.HoodieCompactionPlan;
import org.apache.hudi.common.table.HoodieTableMetaClient;
import org.apache.hudi.common.table.timeline.HoodieInstant;
import org.apache.hudi.common.util.CompactionUtils;
import org.apache.hudi.common.util.collection.Pair;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;

/**
 * Hudi's own reader, in a loop inside one JVM: the properties, the active timeline and every pending compaction plan.
 * Each line of the input says how often; the answer is one line of nanoseconds, then instants and plans that were read.
 */
public final class ReadTimeline {
  private static long instants;
  private static long plans;

  public static void main(String[] arguments) throws Exception {
    HadoopStorageConfiguration storage = new HadoopStorageConfiguration(new Configuration());
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    HoodieTableMetaClient kept = read(storage, arguments[0]);
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] words = line.split(" ");
      StringBuilder answer = new StringBuilder("TIMES");
      for (int n = Integer.parseInt(words[1]); n > 0; n--) {
        long started = System.nanoTime();
        if (words[0].equals("again")) {
          instants = kept.reloadActiveTimeline().countInstants();
          plans = CompactionUtils.getAllPendingCompactionPlans(kept).size();
        } else {
          read(storage, arguments[0]);
        }
        answer.append(' ').append(System.nanoTime() - started);
      }
      System.out.println(answer + " / " + instants + " " + plans);
      System.out.flush();
    }
  }

  private static HoodieTableMetaClient read(HadoopStorageConfiguration storage, String path) {
    HoodieTableMetaClient client = HoodieTableMetaClient.builder().setConf(storage).setBasePath(path).build();
    instants = client.getActiveTimeline().countInstants();
    List<Pair<HoodieInstant, HoodieCompactionPlan>> pending = CompactionUtils.getAllPendingCompactionPlans(client);
    plans = pending.size();
    return client;
  }
}
