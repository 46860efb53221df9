CREATE TABLE orders (
    id          BIGINT AUTO_INCREMENT PRIMARY KEY,
    customer    VARCHAR(255) NOT NULL,
    total_cents BIGINT NOT NULL,
    status      VARCHAR(20) NOT NULL
);

CREATE TABLE outbox (
    id             BIGINT AUTO_INCREMENT PRIMARY KEY,
    aggregate_type VARCHAR(255) NOT NULL,
    aggregate_id   VARCHAR(255) NOT NULL,
    event_type     VARCHAR(255) NOT NULL,
    payload        JSON NOT NULL,
    created_at     DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3),
    published_at   DATETIME(3) NULL,
    retry_count    INT DEFAULT 0
);
