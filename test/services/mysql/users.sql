-- root: the administrator, without a password. cdc: what outboxd needs. norights: may only connect. Not in the binlog.
SET sql_log_bin = 0;
CREATE USER IF NOT EXISTS 'root'@'%';
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
CREATE USER IF NOT EXISTS 'cdc'@'%' IDENTIFIED BY 'cdc-pw';
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'cdc'@'%';
GRANT SELECT ON `test\_%`.* TO 'cdc'@'%';
CREATE USER IF NOT EXISTS 'norights'@'%' IDENTIFIED BY 'norights-pw';
