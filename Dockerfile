# Two images from one file:
#
#   docker build --target compiler -t popc .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" popc compile model.onnx -o model.popx
#
#   docker build --target runtime -t popc-runtime .
#   docker run --rm -i -v "$PWD:/data" popc-runtime model.popx < requests.txt
#   docker run --rm -p 8000:8000 -v "$PWD:/data" --entrypoint python popc-runtime \
#       -m popc_runtime.serving net=model.popx --host 0.0.0.0
#
# For both kinds of processors: docker buildx build --platform linux/amd64,linux/arm64 ...
# docs/images.md says more: other bases, package indexes of one's own, builds without a daemon.

# Any image of Debian's family that has python3 with the module venv.  To build from the same bytes
# every time, name it by its digest: NAME@sha256:... (docs/images.md).
ARG BASE=docker.io/library/python:3.13.9-slim-trixie

FROM ${BASE} AS wheels
ARG PYTHON_HEADERS=""
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev ${PYTHON_HEADERS} \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /build
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY popc popc
COPY runtime runtime
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    /build/bin/pip wheel --no-cache-dir --no-deps --wheel-dir /wheels ./runtime .

FROM ${BASE} AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PATH=/opt/popc/bin:$PATH \
    HOME=/tmp XDG_CACHE_HOME=/tmp/cache
RUN python3 -m venv /opt/popc
COPY docker/constraints.txt /opt/popc/constraints.txt
# Whoever runs it: results go to the folder that is mounted here.
RUN mkdir /data && chmod 1777 /data
WORKDIR /data

FROM base AS runtime
ARG RUNTIME_EXTRAS=fsspec,serve,sign
COPY --from=wheels /wheels /wheels
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install --no-cache-dir --constraint /opt/popc/constraints.txt \
        "$(echo /wheels/popc_runtime-*.whl)[${RUNTIME_EXTRAS}]" \
    && rm -rf /wheels
COPY samples/serve.py /opt/popc/serve.py
USER 1000:1000
HEALTHCHECK --interval=30s --timeout=10s --start-period=5s \
    CMD ["python", "-c", "from popc_runtime.native import find_library as f; assert f()"]
ENTRYPOINT ["python", "/opt/popc/serve.py"]

FROM base AS compiler
ARG EXTRAS=images,plot,report,serve,sign,verify
COPY --from=wheels /wheels /wheels
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    pip install --no-cache-dir --constraint /opt/popc/constraints.txt \
        --find-links /wheels "popc[${EXTRAS}]" \
    && rm -rf /wheels
USER 1000:1000
HEALTHCHECK --interval=30s --timeout=20s CMD ["popc", "doctor"]
ENTRYPOINT ["popc"]
CMD ["--help"]
