-- cdc: may replicate, as outboxd needs. norights: may only connect.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'cdc') THEN
    CREATE ROLE cdc LOGIN REPLICATION PASSWORD 'cdc-pw';
  END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'norights') THEN
    CREATE ROLE norights LOGIN PASSWORD 'norights-pw';
  END IF;
END
$$;
