"""What Spark's Java says on standard error in a session of ours: warnings and errors, each in a line.

Left out is what every start on one machine says (no library of Hadoop, a name that is a loopback address,
temporary checkpoints). An error of ours comes with the traceback of a worker, inside of an exception of Java,
with its own stack: the line has the error alone, everything else is as long as it is.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.pipeline.user_cache import cached_file

SETTING: Final = "log4j2.configurationFile"
_OURS: Final = (
    r"(?s)^([^\n]{0,200})[^\n]*\n.*\namqp_broker[.]pipeline[.][a-z_.]+[.]([A-Z][A-Za-z]+: [^\n]*)\n.*"
)
"""A message and its exception: what it begins with, and the error of ours in it."""
LOG_SETTINGS: Final = f"""\
# Written by amqp_broker.pipeline.session.spark_session; another file: -D{SETTING}=...
status = error
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr

appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.alwaysWriteExceptions = false
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %replace{{%m%n%xEx}}{{{_OURS}}}{{$1: $2\\n}}

logger.hadoop.name = org.apache.hadoop.util.NativeCodeLoader
logger.hadoop.level = error
logger.hosts.name = org.apache.spark.util.Utils
logger.hosts.level = error
logger.checkpoints.name = org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream
logger.checkpoints.level = error
"""


def java_option() -> str:
    """What tells Java of a file with these settings, which is made once for each user."""
    return f"-D{SETTING}={cached_file('log4j2', 'properties', LOG_SETTINGS).resolve().as_uri()}"
