package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
)

// inserts are the prepared inserts of one driver connection, with the room for their arguments. They go past
// database/sql's conversion of arguments, a fifth of the cost of a row. Whoever holds the connection owns them.
type inserts struct {
	conn                    any // the driver's connection that prepared them
	request, requests, fact driver.Stmt
	args                    []driver.NamedValue
}

func prepareInserts(ctx context.Context, conn any) (*inserts, error) {
	c, ok := conn.(driver.ConnPrepareContext)
	if !ok {
		return nil, fmt.Errorf("driver connection %T cannot prepare", conn)
	}
	in := &inserts{conn: conn, args: make([]driver.NamedValue, bulkRows*requestWidth)}
	for i := range in.args {
		in.args[i].Ordinal = i + 1
	}
	for _, p := range []struct {
		to  *driver.Stmt
		sql string
	}{{&in.request, insertRequests(1)}, {&in.requests, insertRequests(bulkRows)}, {&in.fact, insertFact}} {
		st, err := c.PrepareContext(ctx, p.sql)
		if err != nil {
			return nil, errors.Join(err, in.close())
		}
		*p.to = st
	}
	return in, nil
}

func (in *inserts) close() error {
	var errs []error
	for _, st := range []driver.Stmt{in.request, in.requests, in.fact} {
		if st != nil {
			errs = append(errs, st.Close())
		}
	}
	return errors.Join(errs...)
}

// exec runs one insert. Its context never ends: for one that can, the driver starts a goroutine per statement.
func exec(st driver.Stmt, args []driver.NamedValue) error {
	e, ok := st.(driver.StmtExecContext)
	if !ok {
		return fmt.Errorf("driver statement %T cannot execute", st)
	}
	_, err := e.ExecContext(context.Background(), args)
	for i := range args {
		args[i].Value = nil // the rows' texts are not kept alive until the next batch
	}
	return err
}

// inRaw runs f in one transaction with the prepared inserts of the writing connection.
func (s *Store) inRaw(ctx context.Context, f func(*inserts) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return conn.Raw(func(dc any) error {
		if s.inserts == nil || s.inserts.conn != dc { // database/sql may have opened another connection meanwhile
			if s.inserts, err = prepareInserts(ctx, dc); err != nil {
				return err
			}
		}
		b, ok := dc.(driver.ConnBeginTx)
		if !ok {
			return fmt.Errorf("driver connection %T has no transactions", dc)
		}
		tx, err := b.BeginTx(ctx, driver.TxOptions{})
		if err != nil {
			return err
		}
		if err := f(s.inserts); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	})
}

// inTx runs f in one transaction of database/sql on the writing connection.
func (s *Store) inTx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	return tx.Commit()
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

func placeholders(rows, width int) string {
	row := "(" + strings.TrimSuffix(strings.Repeat("?,", width), ",") + ")"
	return strings.TrimSuffix(strings.Repeat(row+",", rows), ",")
}

// insertRequests fails and leaves the undoing to its transaction: with SQLite's default every statement of several rows
// would keep a journal of its own, a fifth of what a row costs.
func insertRequests(rows int) string {
	return fmt.Sprintf("INSERT OR FAIL INTO requests (%s) VALUES %s", requestColumns, placeholders(rows, requestWidth))
}
