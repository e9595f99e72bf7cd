# One image for both services: `peacefs coordinator` and `peacefs datanode`.
FROM python:3.12-slim

WORKDIR /opt/peacefs
COPY locks/build.lock locks/services.lock locks/
RUN pip install --no-cache-dir --require-hashes -r locks/build.lock \
 && pip install --no-cache-dir --require-hashes -r locks/services.lock
COPY . .
RUN pip install --no-cache-dir --no-build-isolation --no-deps .

RUN useradd --create-home peacefs && mkdir /data && chown peacefs /data
USER peacefs
VOLUME /data
ENTRYPOINT ["peacefs"]
