# Two images from one file:
#
#   docker build --target compiler -t popc .
#   docker run --rm -v "$PWD:/data" popc compile model.onnx -o model.popx
#
#   docker build --target runtime -t popc-runtime .
#   docker run --rm -i -v "$PWD:/data" popc-runtime model.popx < requests.txt

ARG PYTHON=3.13-slim

FROM python:${PYTHON} AS wheels
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY popc popc
COPY runtime runtime
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels ./runtime .

FROM python:${PYTHON} AS base
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
RUN useradd --create-home --uid 1000 popc
WORKDIR /data

FROM base AS runtime
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir /wheels/popc_runtime-*.whl
COPY samples/serve.py /opt/popc/serve.py
USER popc
ENTRYPOINT ["python", "/opt/popc/serve.py"]

FROM base AS compiler
RUN --mount=type=bind,from=wheels,source=/wheels,target=/wheels \
    pip install --no-cache-dir /wheels/popc_runtime-*.whl /wheels/popc-*.whl
USER popc
ENTRYPOINT ["popc"]
CMD ["--help"]
