package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	driver "github.com/go-sql-driver/mysql"

	"github.com/outboxd/outboxd/test/demo/orders"
)

// mysql is the database "shop" on a MySQL server that was started before.
type mysql struct {
	addr string
	db   *sql.DB
}

// openMySQL makes the database, its tables, and the account of outboxd with the
// rights that it needs.
func openMySQL(ctx context.Context, addr string) (*mysql, error) {
	config := driver.NewConfig()
	config.User, config.Net, config.Addr = "root", "tcp", addr
	config.MultiStatements = true
	admin, err := driver.NewConnector(config)
	if err != nil {
		return nil, err
	}
	server := sql.OpenDB(admin)
	defer func() { _ = server.Close() }()
	_, err = server.ExecContext(ctx, `
		CREATE DATABASE shop;
		CREATE USER outboxd IDENTIFIED BY 'outboxd';
		GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO outboxd;
		GRANT SELECT ON shop.* TO outboxd`)
	if err != nil {
		return nil, fmt.Errorf("make database and account: %w", err)
	}
	config.DBName = "shop"
	shop, err := driver.NewConnector(config)
	if err != nil {
		return nil, err
	}
	m := &mysql{addr: addr, db: sql.OpenDB(shop)}
	if _, err := m.db.ExecContext(ctx, orders.MySQL.Schema); err != nil {
		return nil, errors.Join(fmt.Errorf("make the tables: %w", err), m.stop())
	}
	return m, nil
}

func (m *mysql) url() string           { return "mysql://outboxd:outboxd@" + m.addr + "/shop" }
func (m *mysql) shop() *orders.Service { return orders.New(m.db, orders.MySQL) }
func (m *mysql) stop() error           { return m.db.Close() }

func (m *mysql) committed(ctx context.Context) (all []row, err error) {
	err = m.each(ctx, `SELECT id, aggregate_id, event_type, CAST(payload AS CHAR) FROM outbox ORDER BY id`, func(rows *sql.Rows) error {
		var r row
		err := rows.Scan(&r.ID, &r.AggregateID, &r.EventType, &r.Payload)
		all = append(all, r)
		return err
	})
	return all, err
}

func (m *mysql) rolledBack(ctx context.Context) (gone []int64, err error) {
	next := int64(1)
	err = m.each(ctx, `SELECT id FROM outbox ORDER BY id`, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		for ; next < id; next++ {
			gone = append(gone, next)
		}
		next = id + 1
		return err
	})
	return gone, err
}

// sight reads the end of the log after the rows, so each of them lies before it.
func (m *mysql) sight(ctx context.Context) (s sighting, err error) {
	err = m.each(ctx, `SELECT id FROM outbox`, func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		s.ids = append(s.ids, id)
		return err
	})
	if err != nil {
		return s, err
	}
	var file, rest sql.RawBytes
	err = m.each(ctx, `SHOW BINARY LOG STATUS`, func(rows *sql.Rows) error {
		var pos int64
		if err := rows.Scan(&file, &pos, &rest, &rest, &rest); err != nil {
			return err
		}
		s.place, err = logPlace(string(file), pos)
		return err
	})
	return s, err
}

// confirmed looks into the position that outboxd had saved: the server keeps none for its readers.
func (m *mysql) confirmed(ctx context.Context, checkpoint func(context.Context) (string, error)) (int64, error) {
	position, err := checkpoint(ctx)
	if err != nil {
		return 0, err
	}
	_, fields, _ := strings.Cut(position, "?")
	values, err := url.ParseQuery(fields)
	if err != nil {
		return 0, fmt.Errorf("read position %q: %w", position, err)
	}
	pos, err := strconv.ParseInt(values.Get("pos"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read position %q: %w", position, err)
	}
	return logPlace(values.Get("file"), pos)
}

// logPlace makes one number of a file's number and a position in it.
func logPlace(file string, pos int64) (int64, error) {
	number, err := strconv.ParseInt(file[strings.LastIndexByte(file, '.')+1:], 10, 32)
	if err != nil {
		return 0, fmt.Errorf("binary log %q has no number: %w", file, err)
	}
	return number<<40 | pos, nil
}

func (m *mysql) each(ctx context.Context, query string, take func(*sql.Rows) error) error {
	rows, err := m.db.QueryContext(ctx, query)
	if err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := take(rows); err != nil {
			return fmt.Errorf("%s: %w", query, err)
		}
	}
	return rows.Err()
}
