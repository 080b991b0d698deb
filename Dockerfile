# The two images of Ackwright; docs/image.md says how to build, extend and check them.
#   docker build --target operator .
#   buildah bud --layers --isolation chroot --network host --target spark .
# Settings of the build machine (a CA bundle, mirrors, proxies) are mounted during the build, never copied.
ARG BASE_IMAGE=python:3.11-slim-bookworm

# Any Debian bookworm with apt; packages that it has are not installed again.
FROM ${BASE_IMAGE} AS base
ENV LANG=C.UTF-8 \
    PATH=/opt/ackwright/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
RUN set -eu; missing=; \
    command -v python3 >/dev/null || missing=python3; \
    command -v tini >/dev/null || missing="$missing tini"; \
    command -v update-ca-certificates >/dev/null || missing="$missing ca-certificates"; \
    if [ -n "$missing" ]; then \
        apt-get update -qq; \
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing; \
        apt-get clean; rm -rf /var/lib/apt/lists/*; \
    fi; \
    groupadd --gid 10001 ackwright; \
    useradd --uid 10001 --gid 10001 --create-home --no-log-init --shell /usr/sbin/nologin ackwright

# pip and the build backends stay in this stage; the images get /opt/ackwright/venv, which has none of them.
FROM base AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN --mount=type=cache,target=/root/.cache/pip set -eu; \
    python3 -c 'import ensurepip, venv' 2>/dev/null || { \
        apt-get update -qq; \
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3-venv; \
    }; \
    python3 -m venv /opt/build; \
    /opt/build/bin/pip install -q hatchling==1.33.0 setuptools==81.0.0 wheel==0.48.0; \
    python3 -m venv --without-pip /opt/ackwright/venv

FROM build AS operator-requirements
COPY requirements/operator.lock /src/
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/build/bin/pip --python /opt/ackwright/venv/bin/python install -q --require-hashes -r /src/operator.lock
# The asynchronous Kubernetes client is a third of the environment, and nothing imports it.
RUN rm -r /opt/ackwright/venv/lib/python3*/site-packages/kubernetes/aio

FROM operator-requirements AS operator-package
COPY pyproject.toml README.md LICENSE /src/
COPY jars /src/jars
COPY docs/delivery-simulator.html /src/docs/
COPY operator /src/operator
COPY spark_app /src/spark_app
# /package holds only what the package adds to the environment, so that it becomes a separate layer.
RUN chmod -R a+rX /src && cd /src && \
    /opt/build/bin/pip wheel -q --no-deps --no-build-isolation --no-index -w /wheel . && \
    /opt/build/bin/pip --python /opt/ackwright/venv/bin/python install -q --no-deps --no-index --root /package /wheel/*.whl

FROM base AS operator
COPY --from=operator-requirements /opt/ackwright /opt/ackwright
COPY --from=operator-package /package/opt/ackwright /opt/ackwright
# One arena for all threads: with one for each, freed memory is scattered and stays with the process.
ENV PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 MALLOC_ARENA_MAX=1
WORKDIR /tmp
USER 10001:10001
ENTRYPOINT ["tini", "--", "ackwright"]
CMD ["operator"]

FROM base AS java
# Java's package links into a directory of manual pages, which slim bases lack.
RUN set -eu; \
    if ! command -v java >/dev/null; then \
        mkdir -p /usr/share/man/man1; \
        apt-get update -qq; \
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless; \
        apt-get clean; rm -rf /var/lib/apt/lists/*; \
    fi

FROM java AS spark-jars
RUN apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends maven
COPY jars/spark/pom.xml /src/
COPY jars/s3/pom.xml /src/s3/
RUN mvn -q -B -f /src/pom.xml dependency:copy-dependencies -DoutputDirectory=/opt/ackwright/jars -DincludeScope=runtime && \
    mvn -q -B -f /src/s3/pom.xml dependency:copy-dependencies -DoutputDirectory=/opt/ackwright/s3 -DincludeScope=runtime && \
    chmod -R a+rX /opt/ackwright/jars /opt/ackwright/s3

FROM build AS spark-requirements
COPY requirements/spark.lock /src/
# pyspark is a source archive; the pinned backend above builds it.
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/build/bin/pip wheel -q --no-build-isolation --require-hashes -r /src/spark.lock -w /wheels && \
    /opt/build/bin/pip --python /opt/ackwright/venv/bin/python install -q --no-deps --no-index /wheels/*.whl && \
    rm -r /wheels
# Removed: examples, shells, Hive, YARN, Spark Connect, native code for other machines, tests. Python workers import
# pyspark from the environment, compiled, not from python/lib, an archive of its sources.
RUN set -eu; \
    site=$(/opt/ackwright/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
    echo /opt/ackwright/lib >"$site/ackwright.pth"; \
    ln -s "$site/pyspark" /opt/ackwright/spark; \
    find "$site" -type d -name tests -prune -exec rm -rf {} +; \
    cd "$site/pyspark"; \
    rm -rf ../pyarrow/include examples data sbin python bin/*.cmd; \
    cd jars; \
    rm -rf connect-repl spark-connect_* spark-repl_* scala-compiler-* jline-* spark-yarn_* \
        spark-hive* hive-[!s]* hive-se* hive-sh* datanucleus-* derby* \
        netty-codec-native-quic-* *-osx-* *-windows-* *-riscv64.jar; \
    case $(uname -m) in x86_64) rm -f *-linux-aarch_64.jar ;; aarch64) rm -f *-linux-x86_64.jar ;; esac

# The connector's jars are linked into Spark's directory of jars: driver and executors need no setting for them. The
# class path is stored in a fixed order, because the class archive fits no other, and the order of a directory differs
# between machines.
FROM java AS spark-runtime
COPY --from=spark-requirements /opt/ackwright /opt/ackwright
COPY --from=spark-jars /opt/ackwright/jars /opt/ackwright/jars
# Only pods of pipelines with state in a bucket have these in their class path.
COPY --from=spark-jars /opt/ackwright/s3 /opt/ackwright/s3
RUN ln -s /opt/ackwright/jars/*.jar /opt/ackwright/spark/jars/ && \
    printf ':%s' /opt/ackwright/spark/jars/*.jar | cut -c2- >/opt/ackwright/classpath
ENV SPARK_HOME=/opt/ackwright/spark PYSPARK_PYTHON=/opt/ackwright/venv/bin/python

# Class data sharing (JEP 350), made by the same program as for local runs, which loads what a job loads. Java writes the
# archive when it exits, after Python; the pipe keeps the step running until then.
FROM spark-runtime AS spark-archive
WORKDIR /tmp
COPY spark_app/ackwright_stream/spark_internals/class_archive.py .
RUN export SPARK_SUBMIT_OPTS="-XX:ArchiveClassesAtExit=/opt/ackwright/spark.jsa -Xlog:disable" SPARK_LOCAL_IP=127.0.0.1; \
    { python class_archive.py "$(cat /opt/ackwright/classpath)" && touch loaded; } 2>&1 | cat; \
    test -f loaded && test -s /opt/ackwright/spark.jsa

FROM spark-runtime AS spark
COPY --from=spark-archive /opt/ackwright/spark.jsa /opt/ackwright/
COPY spark_app/entrypoint.sh /opt/ackwright/entrypoint
COPY spark_app/ackwright_stream /opt/ackwright/lib/ackwright_stream
RUN chmod 755 /opt/ackwright/entrypoint && chmod -R a+rX /opt/ackwright/lib && \
    python -m compileall -q /opt/ackwright/lib && mkdir /opt/ackwright/app
ENV PYTHONPATH=/opt/ackwright/app PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1
WORKDIR /tmp
USER 10001:10001
ENTRYPOINT ["tini", "--", "/opt/ackwright/entrypoint"]
