# Two images. The default, `services`: `peacefs coordinator` and `peacefs datanode`. With `--target queries` what an
# agent needs besides to start Spark queries: PySpark and a Java runtime.
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
