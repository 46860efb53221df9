# syntax=docker/dockerfile:1
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=unknown COMMIT=unknown
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=$VERSION -X main.commit=$COMMIT" -o /out/outboxd ./cmd/outboxd \
 && mkdir -p /out/data

# Nothing but the program, the certificate authorities, and a folder for the checkpoint.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/outboxd /outboxd
COPY --from=build --chown=65532:65532 /out/data /var/lib/outboxd
USER 65532:65532
WORKDIR /var/lib/outboxd
ENV OUTBOXD_HTTP_ADDR=:8080
EXPOSE 8080
ENTRYPOINT ["/outboxd"]
