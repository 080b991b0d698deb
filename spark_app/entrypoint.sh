#!/bin/sh
# Runs what a container of the Spark image is for: a driver, an audit, or an executor that a driver started on Kubernetes.
set -eu

usage() {
  cat >&2 <<'TEXT'
usage: driver --jobspec FILE [...]     run one pipeline
       audit --jobspec FILE [...]      count what it lost and duplicated
       executor                        execute for a driver, in a pod that it created on Kubernetes
TEXT
  exit 2
}

here=$(dirname "$0")
class_path=$(cat "$here/classpath")
# Java must not report a class archive that does not fit on stdout, which belongs to the program.
archive="-XX:SharedArchiveFile=$here/spark.jsa -Xshare:auto -Xlog:disable -Xlog:all=error:stderr"

start_python() {
  export SPARK_SUBMIT_OPTS="$archive ${SPARK_SUBMIT_OPTS:-}"
  export PYSPARK_SUBMIT_ARGS="--driver-class-path $class_path ${PYSPARK_SUBMIT_ARGS:-pyspark-shell}"
  exec "$PYSPARK_PYTHON" "$@"
}

executor() {
  for name in DRIVER_URL EXECUTOR_ID EXECUTOR_CORES EXECUTOR_MEMORY APPLICATION_ID EXECUTOR_POD_IP EXECUTOR_POD_NAME RESOURCE_PROFILE_ID; do
    if eval "[ -z \"\${SPARK_$name:-}\" ]"; then
      echo "ackwright: SPARK_$name is not set; 'executor' is for pods that a Spark driver creates on Kubernetes" >&2
      exit 2
    fi
  done
  # Spark's driver puts each Java option into its own variable, among them the --add-opens that Java 17 needs.
  n=0
  while eval "[ -n \"\${SPARK_JAVA_OPT_$n+set}\" ]"; do
    eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$n\""
    n=$((n + 1))
  done
  # The archive fits only a path that begins with the jars.
  # shellcheck disable=SC2086 # $archive is several words
  exec java $archive "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$class_path:$SPARK_HOME/jars/*${SPARK_DIST_CLASSPATH:+:$SPARK_DIST_CLASSPATH}${SPARK_CONF_DIR:+:$SPARK_CONF_DIR}" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" --podName "$SPARK_EXECUTOR_POD_NAME" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID"
}

case ${1:-} in
  driver) shift && start_python -m ackwright_stream "$@" ;;
  audit) shift && start_python -m ackwright_stream.audit "$@" ;;
  executor) [ $# -eq 1 ] || usage; shift; executor ;;
  *) usage ;;
esac
