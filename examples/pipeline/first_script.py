"""Where to start: `python examples/pipeline/first_script.py URL CHECKPOINT_DIR [--out DIR]`.

Reads the orders of a day as a batch and leaves totals as Parquet; then goes on where it ended last time, and
writes the large ones of what is new to another queue, exactly once. Run it by hand or every few minutes. The
broker keeps the queue `orders` for it (`retention_ms`, see broker.toml beside this file).
"""

from __future__ import annotations

import argparse
import datetime

from pyspark.sql.functions import expr

from amqp_broker.pipeline.session import spark_session

options = argparse.ArgumentParser(description="totals of a day, and large orders as they come")
options.add_argument("url", help="the broker, such as amqp://127.0.0.1:5672")
options.add_argument("checkpoint", help="a folder that stays: where the query is")
options.add_argument("--out", default="totals", help="where the Parquet files go (default totals)")
options.add_argument(
    "--day", default=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}", help="default today, UTC"
)
chosen = options.parse_args()

# A session on this machine; it finds a Java by itself. On a cluster take yours, the rest stays as it is.
spark = spark_session("first-script", cores=2)
spark.sparkContext.setLogLevel("ERROR")

# --- A batch: a day is found by the broker's clock. Reading takes nothing from the queue, and what consumers
# took is there all the same. Of each message only the body is decoded: say what you need. `endingTimestamp`
# would end it; without, it ends with what is there now.
source = {"amqp.url": chosen.url, "subscribe": "orders", "includeSections": "body"}
day = spark.read.format("amqp").options(**source, startingTimestamp=f"{chosen.day}T00:00:00+00:00").load()

# What senders send is octets. A message that is no such JSON has nulls here, and is counted below as one.
ORDER = "from_json(cast(body AS string), 'order STRING, item STRING, pieces INT') AS order"
orders = day.selectExpr("enqueued_at", ORDER).select("enqueued_at", "order.*")
totals = orders.groupBy("item").agg(expr("count(*) AS orders"), expr("sum(pieces) AS pieces"))
# A folder for each day, written anew each time: to run it twice does no harm.
totals.write.mode("overwrite").parquet(f"{chosen.out}/day={chosen.day}")
totals.orderBy("item").show()

# --- A stream. The subscription is this query's name at the broker: an administrator sees how far it is, and
# nobody can run it twice at once. Without `startingOffsets` a new query begins with the oldest order.
new = spark.readStream.format("amqp").options(**source).option("subscription", "first-script").load()
large = new.selectExpr(ORDER, "body").where("order.pieces >= 10").select("body")
query = (
    # The sink stages each micro-batch and commits it as one: nobody sees half of it, nor anything twice.
    large.writeStream.format("amqp")
    .option("amqp.url", chosen.url)
    .option("address", "large-orders")
    # The place of the query. Together with the sink it makes "exactly once": keep it as you keep the data.
    .option("checkpointLocation", chosen.checkpoint)
    # Everything that is there now, then the end. `processingTime="1 second"` instead goes on for ever.
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()  # raises what went wrong; the next run goes on behind the last batch that is done
read = sum(progress["numInputRows"] for progress in query.recentProgress)
print(f"the stream read {read} new orders")
spark.stop()
