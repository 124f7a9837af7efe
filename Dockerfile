# The command line as one static file in an empty image: no shell, no package manager, no root.
#
#   docker build -t tidelock .
#   docker run --rm tidelock doctor --url redis://redis.example:6379
#
# `tidelock run` starts a command, and this image has none. Copy the file into the image that has it:
#
#   COPY --from=tidelock /usr/bin/tidelock /usr/bin/tidelock

FROM rust:1-alpine AS build
# A C compiler for ring, which has the cryptography of TLS, and the certificate authorities for the last stage.
RUN apk add --no-cache build-base ca-certificates
WORKDIR /src
COPY . .
# The tool chain of this image links statically.
RUN cargo build --release --locked --package tidelock-cli \
 && mkdir -p /image/usr/bin /image/etc/ssl/certs /image/var/lib/tidelock \
 && cp target/release/tidelock /image/usr/bin/ \
 && cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ \
 # Locks in files are kept in the home of the user, which is looked up here.
 && echo 'tidelock:x:65532:65532::/var/lib/tidelock:/sbin/nologin' > /image/etc/passwd \
 && chown 65532:65532 /image/var/lib/tidelock \
 && /image/usr/bin/tidelock --version

FROM scratch
COPY --from=build /image /
USER 65532:65532
ENTRYPOINT ["/usr/bin/tidelock"]
CMD ["--help"]
