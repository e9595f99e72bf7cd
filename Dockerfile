# Three images. The default, `services`: `peacefs coordinator` and `peacefs datanode`. With `--target queries` what an
# agent needs besides to start Spark queries: PySpark and a Java runtime. With `--target journal` a member of etcd.
#
# Nothing in them runs as root. What builds packages, pip and the tree stay behind in the stages that have built.

# One member of the journal of coordinators that stand by for each other.
FROM python:3.12-slim AS journal
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends etcd-server \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --uid 1000 --create-home peacefs \
 && install --directory --owner peacefs --group peacefs --mode 0700 /data
USER 1000:1000
VOLUME /data
ENTRYPOINT ["etcd"]

FROM python:3.12-slim AS build
WORKDIR /source
COPY locks/build.lock locks/services.lock locks/
RUN python -m venv /opt/peacefs \
 && /opt/peacefs/bin/pip install --no-cache-dir --require-hashes -r locks/build.lock \
 && /opt/peacefs/bin/pip install --no-cache-dir --require-hashes -r locks/services.lock
COPY . .
RUN /opt/peacefs/bin/pip install --no-cache-dir --no-build-isolation --no-deps . \
 && /opt/peacefs/bin/pip uninstall --yes setuptools wheel pip

FROM python:3.12-slim AS build-queries
WORKDIR /source
COPY locks/build.lock locks/spark.lock locks/java.lock locks/
RUN python -m venv /opt/peacefs \
 && /opt/peacefs/bin/pip install --no-cache-dir --require-hashes -r locks/build.lock \
 && /opt/peacefs/bin/pip install --no-cache-dir --no-build-isolation --require-hashes -r locks/spark.lock \
 && /opt/peacefs/bin/pip install --no-cache-dir --require-hashes -r locks/java.lock
COPY . .
RUN /opt/peacefs/bin/pip install --no-cache-dir --no-build-isolation --no-deps . \
 && /opt/peacefs/bin/pip uninstall --yes setuptools wheel pip

FROM python:3.12-slim AS base
RUN python -m pip uninstall --yes pip \
 && useradd --uid 1000 --create-home peacefs \
 && install --directory --owner peacefs --group peacefs --mode 0700 /data
COPY deploy/container/health.py /usr/local/bin/peacefs-health
ENV PATH=/opt/peacefs/bin:$PATH
WORKDIR /data
USER 1000:1000
VOLUME /data
# A coordinator's, unless HEALTH_URL names another service.
HEALTHCHECK --interval=10s --timeout=10s --start-period=120s --retries=6 CMD ["peacefs-health"]
ENTRYPOINT ["peacefs"]

FROM base AS queries
COPY --from=build-queries /opt/peacefs /opt/peacefs
COPY examples /opt/peacefs/examples
# An agent has no port; its coordinator says whether it is there.
HEALTHCHECK NONE

FROM base AS services
COPY --from=build /opt/peacefs /opt/peacefs
