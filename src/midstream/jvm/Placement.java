package midstream;

import java.io.Serializable;
import org.apache.spark.Partition;
import org.apache.spark.rdd.PartitionCoalescer;
import org.apache.spark.rdd.PartitionGroup;
import org.apache.spark.rdd.RDD;
import scala.Option;

/**
 * Leaves every partition as it is and tells Spark where its task should run: partition i at locations[i], in Spark's
 * own notation ("executor_host_id"), or anywhere when that is empty. A wish, not an order: a task whose executor is
 * busy for longer than spark.locality.wait, or gone, runs elsewhere.
 */
public final class Placement implements PartitionCoalescer, Serializable {
  private static final long serialVersionUID = 1L;

  private final String[] locations;

  public Placement(String locations) {
    this.locations = locations.split("\n", -1);
  }

  public PartitionGroup[] coalesce(int maxPartitions, RDD parent) {
    Partition[] partitions = parent.partitions();
    PartitionGroup[] groups = new PartitionGroup[partitions.length];
    for (int i = 0; i < partitions.length; i++) {
      String location = i < this.locations.length ? this.locations[i] : "";
      groups[i] = new PartitionGroup(Option.apply(location.isEmpty() ? null : location));
      groups[i].partitions().append(partitions[i]);
    }
    return groups;
  }
}
