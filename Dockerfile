# Three images. The default, `services`: `peacefs coordinator` and `peacefs datanode`. With `--target queries` what an
# agent needs besides to start Spark queries: PySpark and a Java runtime. With `--target journal` a member of etcd.
# One member of the journal of coordinators that stand by for each other.
FROM python:3.12-slim AS journal
RUN apt-get update && apt-get install --yes --no-install-recommends etcd-server && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home peacefs && mkdir /data && chown peacefs /data && chmod 0700 /data
USER peacefs
VOLUME /data
ENTRYPOINT ["etcd"]

FROM python:3.12-slim AS base

WORKDIR /opt/peacefs
COPY locks/build.lock locks/services.lock locks/
RUN pip install --no-cache-dir --require-hashes -r locks/build.lock \
 && pip install --no-cache-dir --require-hashes -r locks/services.lock
COPY . .
RUN pip install --no-cache-dir --no-build-isolation --no-deps .

RUN useradd --create-home peacefs && mkdir /data && chown peacefs /data
VOLUME /data
ENTRYPOINT ["peacefs"]

FROM base AS queries
RUN pip install --no-cache-dir --no-build-isolation --require-hashes -r locks/spark.lock \
 && pip install --no-cache-dir --require-hashes -r locks/java.lock
USER peacefs

FROM base AS services
USER peacefs
