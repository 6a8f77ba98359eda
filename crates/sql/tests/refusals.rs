//! Every clause that the front refuses, by name: statement, SQLSTATE, part of the message.
//!
//! The lists follow the files of `src/front`, branch by branch. What PostgreSQL's dialect cannot even say is parsed in
//! the dialect that can (`elsewhere`): the pass must not let it through when the parser learns it.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use datafusion::sql::sqlparser::dialect::{
    BigQueryDialect, ClickHouseDialect, Dialect, DuckDbDialect, GenericDialect, HiveDialect, MsSqlDialect,
    MySqlDialect, OracleDialect, RedshiftSqlDialect, SQLiteDialect, SnowflakeDialect,
};
use datafusion::sql::sqlparser::parser::Parser;
use eris_sql::SqlError;
use eris_sql::front::{self, Command};

fn lowered(sql: &str) -> Result<Command, SqlError> {
    let statements = front::parse(sql)?;
    assert_eq!(statements.len(), 1, "{sql}");
    front::lower(&statements[0].ast)
}

/// The cases that are not refused as they should be.
#[derive(Default)]
struct Problems(Vec<String>);

impl Problems {
    fn check(mut self, cases: &[(&str, &str, &str)]) -> Self {
        for (sql, state, part) in cases {
            self.0.extend(problem(sql, &lowered(sql), state, part));
        }
        self
    }

    /// Parsed in another dialect.
    fn elsewhere(mut self, dialect: &dyn Dialect, cases: &[(&str, &str, &str)]) -> Self {
        for (sql, state, part) in cases {
            match Parser::parse_sql(dialect, sql) {
                Ok(statements) => self.0.extend(problem(sql, &front::lower(&statements[0]), state, part)),
                Err(error) => self.0.push(format!("{sql}\n    {error}")),
            }
        }
        self
    }

    fn none(self) {
        assert!(self.0.is_empty(), "{}:\n{}", self.0.len(), self.0.join("\n"));
    }
}

fn problem(sql: &str, lowered: &Result<Command, SqlError>, state: &str, part: &str) -> Option<String> {
    match lowered {
        Ok(command) => Some(format!("{sql}\n    passed as {command:?}")),
        Err(error) => {
            let mut wrong = Vec::new();
            if error.sqlstate.as_str() != state {
                wrong.push(format!("not {state}"));
            }
            if !error.message.contains(part) {
                wrong.push(format!("no \"{part}\""));
            }
            // A refusal says what to do.
            if state == "0A000" && error.hint.is_none() {
                wrong.push("no hint".to_string());
            }
            (!wrong.is_empty()).then(|| format!("{sql}\n    {}: {error}", wrong.join(", ")))
        }
    }
}

#[test]
fn statements() {
    Problems::default()
        .check(&[
            ("DROP TABLE t CASCADE", "0A000", "DROP ... CASCADE"),
            ("DROP TABLE t PURGE", "0A000", "PURGE"),
            ("DROP INDEX i ON t", "0A000", "DROP INDEX ... ON"),
            ("DROP VIEW v", "0A000", "DROP VIEW"),
            ("DROP SCHEMA s", "0A000", "DROP SCHEMA"),
            ("EXPLAIN QUERY PLAN SELECT 1", "0A000", "QUERY PLAN"),
            ("EXPLAIN ESTIMATE SELECT 1", "0A000", "ESTIMATE"),
            ("EXPLAIN FORMAT JSON SELECT 1", "0A000", "EXPLAIN FORMAT"),
            ("EXPLAIN (FORMAT JSON) SELECT 1", "0A000", "EXPLAIN (FORMAT)"),
            ("EXPLAIN (BUFFERS) SELECT 1", "0A000", "EXPLAIN (BUFFERS)"),
            ("EXPLAIN (COSTS) SELECT 1", "0A000", "EXPLAIN (COSTS)"),
            ("EXPLAIN CREATE TABLE t (a int)", "42601", "EXPLAIN"),
            ("EXPLAIN EXPLAIN SELECT 1", "42601", "root of the plan"),
            ("CREATE VIEW v AS SELECT 1", "0A000", "CREATE VIEW"),
            ("CREATE SCHEMA s", "0A000", "CREATE SCHEMA"),
            ("CREATE SEQUENCE s", "0A000", "CREATE SEQUENCE"),
            ("CREATE ROLE r", "0A000", "CREATE ROLE"),
            ("CREATE EXTENSION e", "0A000", "CREATE EXTENSION"),
            ("CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "0A000", "CREATE FUNCTION"),
            ("ALTER TABLE t ADD COLUMN a int", "0A000", "ALTER TABLE"),
            ("COMMENT ON TABLE t IS 'x'", "0A000", "COMMENT ON"),
            ("GRANT SELECT ON t TO r", "0A000", "GRANT SELECT"),
            ("REVOKE SELECT ON t FROM r", "0A000", "REVOKE SELECT"),
            ("ANALYZE t", "0A000", "ANALYZE"),
            ("LISTEN x", "0A000", "LISTEN"),
            ("NOTIFY x", "0A000", "NOTIFY"),
            ("CALL f()", "0A000", "CALL"),
            ("DECLARE c CURSOR FOR SELECT 1", "0A000", "DECLARE"),
            ("FETCH NEXT FROM c", "0A000", "FETCH"),
            ("CLOSE c", "0A000", "CLOSE"),
            ("MERGE INTO t USING u ON t.a = u.a WHEN MATCHED THEN DELETE", "0A000", "MERGE"),
            ("SHOW TABLES", "0A000", "SHOW TABLES"),
        ])
        .none();
}

#[test]
fn transactions_and_settings() {
    Problems::default()
        .check(&[
            ("SET TRANSACTION SNAPSHOT '0000'", "0A000", "SET TRANSACTION SNAPSHOT"),
            ("COMMIT AND CHAIN", "0A000", "COMMIT AND CHAIN"),
            ("ROLLBACK AND CHAIN", "0A000", "ROLLBACK AND CHAIN"),
            ("ROLLBACK TO SAVEPOINT s", "0A000", "ROLLBACK TO SAVEPOINT"),
            ("SAVEPOINT s", "0A000", "SAVEPOINT"),
            ("RELEASE SAVEPOINT s", "0A000", "SAVEPOINT"),
            ("SET GLOBAL layout = 'row'", "0A000", "SET GLOBAL"),
            ("SET ROLE r", "0A000", "SET ROLE"),
            ("SET NAMES 'UTF8' COLLATE 'x'", "0A000", "COLLATE"),
            ("PREPARE p AS CREATE TABLE t (a int)", "0A000", "PREPARE of this statement"),
            ("PREPARE p (timestamptz) AS SELECT 1", "0A000", "timestamp with time zone"),
            ("EXECUTE a.p", "0A000", "the qualified name a.p"),
            ("EXECUTE p (ARRAY[1])", "0A000", "the expression"),
        ])
        .elsewhere(&SQLiteDialect {}, &[("BEGIN EXCLUSIVE TRANSACTION", "0A000", "this form of BEGIN")])
        .elsewhere(&BigQueryDialect {}, &[("BEGIN SELECT 1; END", "0A000", "this form of BEGIN")])
        .elsewhere(&HiveDialect {}, &[("SET HIVEVAR:a = 1", "0A000", "HIVEVAR")])
        .elsewhere(&SnowflakeDialect {}, &[("SET (a, b) = (1, 2)", "0A000", "SET")])
        .elsewhere(&GenericDialect {}, &[("EXECUTE p USING 1", "0A000", "this form of EXECUTE")])
        .none();
}

#[test]
fn create_table() {
    Problems::default()
        .check(&[
            ("CREATE OR REPLACE TABLE t (a int)", "0A000", "CREATE OR REPLACE TABLE"),
            ("CREATE TEMPORARY TABLE t (a int)", "0A000", "CREATE TEMPORARY TABLE"),
            ("CREATE TEMP TABLE t (a int) ON COMMIT DROP", "0A000", "CREATE TEMPORARY TABLE"),
            ("CREATE GLOBAL TEMPORARY TABLE t (a int)", "0A000", "CREATE TEMPORARY TABLE"),
            ("CREATE TABLE t AS SELECT 1", "0A000", "CREATE TABLE ... AS"),
            ("CREATE TABLE t LIKE u", "0A000", "CREATE TABLE ... LIKE"),
            ("CREATE TABLE t (a int) INHERITS (u)", "0A000", "INHERITS"),
            ("CREATE TABLE t (a int) PARTITION BY RANGE (a)", "0A000", "PARTITION BY"),
            ("CREATE TABLE t PARTITION OF u FOR VALUES IN (1)", "0A000", "PARTITION BY"),
            ("CREATE EXTERNAL TABLE t (a int) STORED AS PARQUET LOCATION 'x'", "0A000", "another SQL dialect"),
            ("CREATE TABLE t (a int) ENGINE = InnoDB", "0A000", "table options outside WITH"),
            ("CREATE TABLE t (a int REFERENCES u)", "0A000", "REFERENCES"),
            ("CREATE TABLE t (a int, FOREIGN KEY (a) REFERENCES u (a))", "0A000", "FOREIGN KEY"),
            ("CREATE TABLE t (a int CHECK (a > 0))", "0A000", "CHECK"),
            ("CREATE TABLE t (a int, CHECK (a > 0))", "0A000", "CHECK"),
            ("CREATE TABLE t (a text COLLATE \"de_DE\")", "0A000", "COLLATE"),
            ("CREATE TABLE t (a int GENERATED ALWAYS AS IDENTITY)", "0A000", "a generated column"),
            ("CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a * 2) STORED)", "0A000", "a generated column"),
            ("CREATE TABLE t (a int COMMENT 'x')", "0A000", "the column option"),
            ("CREATE TABLE t (a int PRIMARY KEY DEFERRABLE)", "0A000", "a deferrable or unenforced constraint"),
            ("CREATE TABLE t (a int, UNIQUE (a) INITIALLY DEFERRED)", "0A000", "a deferrable"),
            ("CREATE TABLE t (a int, UNIQUE NULLS NOT DISTINCT (a))", "0A000", "NULLS NOT DISTINCT"),
            ("CREATE TABLE t (a int DEFAULT (SELECT ARRAY[1]))", "0A000", "the expression"),
            ("CREATE TABLE db.s.t (a int)", "0A000", "a reference to another database"),
            (
                "CREATE TABLE a23456789012345678901234567890123456789012345678901234567890123456789 (a int)",
                "42622",
                "longer than 63 bytes",
            ),
        ])
        .elsewhere(
            &MySqlDialect {},
            &[
                ("CREATE TABLE t (a int, INDEX i (a))", "0A000", "an index inside CREATE TABLE"),
                ("CREATE TABLE t (a int, FULLTEXT INDEX i (a))", "0A000", "an index inside CREATE TABLE"),
                ("CREATE TABLE t (a int, PRIMARY KEY pk USING BTREE (a))", "0A000", "index options of a PRIMARY KEY"),
                ("CREATE TABLE t (a int, UNIQUE KEY k (a))", "0A000", "index options of UNIQUE"),
                ("CREATE TABLE t (a int, PRIMARY KEY (a DESC))", "0A000", "a descending index"),
                ("CREATE TABLE t (a int) COMMENT = 'x'", "0A000", "table options outside WITH"),
                ("CREATE TABLE t (a int) COMMENT 'x'", "0A000", "table options outside WITH"),
            ],
        )
        .elsewhere(
            &HiveDialect {},
            &[
                ("CREATE TABLE t (a int) PARTITIONED BY (b int)", "0A000", "another SQL dialect"),
                ("CREATE TABLE t (a int) STORED AS ORC", "0A000", "another SQL dialect"),
                ("CREATE TABLE t (a int) CLUSTERED BY (a) INTO 4 BUCKETS", "0A000", "another SQL dialect"),
                ("CREATE TABLE t (a int) TBLPROPERTIES ('a' = 'b')", "0A000", "table options outside WITH"),
            ],
        )
        .elsewhere(
            &SQLiteDialect {},
            &[
                ("CREATE TABLE t (a int) WITHOUT ROWID", "0A000", "another SQL dialect"),
                ("CREATE TABLE t (a int) STRICT", "0A000", "another SQL dialect"),
            ],
        )
        .elsewhere(
            &ClickHouseDialect {},
            &[
                ("CREATE TABLE t ON CLUSTER c (a Int32)", "0A000", "another SQL dialect"),
                ("CREATE TABLE t (a Int32) ENGINE = MergeTree ORDER BY (a)", "0A000", "another SQL dialect"),
                ("CREATE TABLE t (a Int32) ENGINE = MergeTree PRIMARY KEY a", "0A000", "another SQL dialect"),
            ],
        )
        .elsewhere(
            &SnowflakeDialect {},
            &[
                ("CREATE TABLE t CLONE u", "0A000", "CREATE TABLE ... LIKE"),
                ("CREATE TRANSIENT TABLE t (a int)", "0A000", "another SQL dialect"),
                ("CREATE TABLE t (a int) CLUSTER BY (a)", "0A000", "another SQL dialect"),
                ("CREATE TABLE t (a int) COPY GRANTS", "0A000", "another SQL dialect"),
                ("CREATE TABLE t (a int) CHANGE_TRACKING = TRUE", "0A000", "another SQL dialect"),
                ("CREATE TABLE t (a int) DATA_RETENTION_TIME_IN_DAYS = 1", "0A000", "another SQL dialect"),
                ("CREATE TABLE t (a int) WITH TAG (a = 'b')", "0A000", "another SQL dialect"),
            ],
        )
        .elsewhere(
            &RedshiftSqlDialect {},
            &[
                ("CREATE TABLE t (a int) DISTSTYLE ALL", "0A000", "another SQL dialect"),
                ("CREATE TABLE t (a int) SORTKEY (a)", "0A000", "another SQL dialect"),
            ],
        )
        .none();
}

#[test]
fn types() {
    Problems::default()
        .check(&[
            ("CREATE TABLE t (a nonsense)", "42704", "type \"nonsense\" does not exist"),
            ("CREATE TABLE t (a timestamptz)", "0A000", "timestamp with time zone"),
            ("CREATE TABLE t (a timestamp with time zone)", "0A000", "timestamp with time zone"),
            ("CREATE TABLE t (a timestamp(3))", "0A000", "timestamp(3)"),
            ("CREATE TABLE t (a time)", "0A000", "type TIME"),
            ("CREATE TABLE t (a interval)", "0A000", "type INTERVAL"),
            ("CREATE TABLE t (a json)", "0A000", "type JSON"),
            ("CREATE TABLE t (a uuid)", "0A000", "type UUID"),
            ("CREATE TABLE t (a int[])", "0A000", "type INT[]"),
            ("CREATE TABLE t (a serial)", "42704", "type \"serial\" does not exist"),
            ("CREATE TABLE t (a numeric(39, 2))", "22023", "between 1 and 38"),
            ("CREATE TABLE t (a numeric(0))", "22023", "between 1 and 38"),
            ("CREATE TABLE t (a numeric(4, 5))", "22023", "NUMERIC scale 5"),
            ("CREATE TABLE t (a varchar(0))", "22023", "must be between 1"),
            ("CREATE TABLE t (a char(99999999))", "22023", "must be between 1"),
        ])
        .none();
}

#[test]
fn indexes_and_truncate() {
    Problems::default()
        .check(&[
            ("CREATE INDEX CONCURRENTLY i ON t (a)", "0A000", "CREATE INDEX CONCURRENTLY"),
            ("CREATE INDEX i ON t (a) WHERE a > 0", "0A000", "a partial index"),
            ("CREATE INDEX i ON t (a) INCLUDE (b)", "0A000", "INCLUDE"),
            ("CREATE UNIQUE INDEX i ON t (a) NULLS NOT DISTINCT", "0A000", "NULLS NOT DISTINCT"),
            ("CREATE INDEX i ON t (a) WITH (fillfactor = 70)", "0A000", "index options"),
            ("CREATE INDEX i ON t USING gin (a)", "0A000", "USING"),
            ("CREATE INDEX i ON t USING reversed (a)", "42704", "access method \"reversed\""),
            ("CREATE UNIQUE INDEX i ON t USING inverted (a)", "0A000", "unique"),
            ("CREATE INDEX i ON t (a DESC)", "0A000", "a descending index or NULLS FIRST"),
            ("CREATE INDEX i ON t (a NULLS FIRST)", "0A000", "a descending index or NULLS FIRST"),
            ("CREATE INDEX i ON t (a text_pattern_ops)", "0A000", "an operator class"),
            ("CREATE INDEX i ON t (lower(a))", "0A000", "an index on the expression"),
            ("CREATE INDEX s.i ON t (a)", "0A000", "the qualified name s.i"),
            ("TRUNCATE t CASCADE", "0A000", "an option of TRUNCATE"),
            ("TRUNCATE t RESTART IDENTITY", "0A000", "an option of TRUNCATE"),
            ("TRUNCATE ONLY t", "0A000", "TRUNCATE ONLY"),
        ])
        .elsewhere(&HiveDialect {}, &[("TRUNCATE TABLE t PARTITION (a = 1)", "0A000", "an option of TRUNCATE")])
        .elsewhere(&ClickHouseDialect {}, &[("TRUNCATE TABLE t ON CLUSTER c", "0A000", "an option of TRUNCATE")])
        .elsewhere(&MySqlDialect {}, &[("CREATE INDEX i ON t (a) ALGORITHM = INPLACE", "0A000", "index options")])
        .none();
}

#[test]
fn data_changes() {
    Problems::default()
        .check(&[
            ("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", "0A000", "INSERT ... ON CONFLICT"),
            ("INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET a = 2", "0A000", "INSERT ... ON CONFLICT"),
            ("INSERT INTO t VALUES (1) RETURNING a", "0A000", "INSERT ... RETURNING"),
            ("INSERT INTO t AS x VALUES (1)", "0A000", "an alias of INSERT's table"),
            ("INSERT INTO t VALUES (1) ORDER BY 1 FOR UPDATE", "0A000", "FOR UPDATE"),
            ("INSERT INTO t VALUES (ARRAY[1])", "0A000", "the expression"),
            ("UPDATE t SET a = 1 RETURNING a", "0A000", "UPDATE ... RETURNING"),
            ("UPDATE t SET (a, b) = (SELECT 1, 2)", "0A000", "SET (a, b) = (SELECT ...)"),
            ("UPDATE t SET (a, b) = (1, 2, 3)", "42601", "number of columns does not match number of values"),
            ("UPDATE t SET t.a = 1", "0A000", "the qualified name t.a"),
            ("UPDATE t JOIN u ON t.a = u.a SET a = 1", "0A000", "UPDATE over a join"),
            ("UPDATE (SELECT 1) x SET a = 1", "0A000", "UPDATE of something that is not a table"),
            ("UPDATE t AS x (b) SET a = 1", "0A000", "column aliases here"),
            ("UPDATE t SET a = 1 FROM generate_series(1, 2) g", "0A000", "a function in FROM"),
            ("UPDATE t SET a = 1 WHERE b COLLATE \"de_DE\" = 'x'", "0A000", "COLLATE"),
            ("DELETE FROM t RETURNING a", "0A000", "DELETE ... RETURNING"),
            ("DELETE FROM t, u", "0A000", "DELETE from several tables"),
            ("DELETE FROM t JOIN u ON t.a = u.a", "0A000", "DELETE over a join"),
            ("DELETE FROM t USING LATERAL (SELECT 1) x", "0A000", "LATERAL"),
            ("DELETE FROM t WHERE a = ANY (b)", "0A000", "ANY and ALL of an array that is not written out"),
        ])
        .elsewhere(
            &MySqlDialect {},
            &[
                ("INSERT IGNORE INTO t VALUES (1)", "0A000", "INSERT ... ON CONFLICT"),
                ("REPLACE INTO t VALUES (1)", "0A000", "INSERT ... ON CONFLICT"),
                ("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 2", "0A000", "INSERT ... ON CONFLICT"),
                ("INSERT LOW_PRIORITY INTO t VALUES (1)", "0A000", "this form of INSERT"),
                ("INSERT INTO t SET a = 1", "0A000", "this form of INSERT"),
                ("INSERT INTO t VALUES (1) AS x", "0A000", "this form of INSERT"),
                ("UPDATE t SET a = 1 LIMIT 1", "0A000", "this form of UPDATE"),
                ("UPDATE t SET a = 1 ORDER BY a LIMIT 1", "0A000", "this form of UPDATE"),
                ("DELETE FROM t LIMIT 1", "0A000", "this form of DELETE"),
                ("DELETE t FROM t", "0A000", "this form of DELETE"),
                ("INSERT INTO t VALUES ROW(1)", "0A000", "VALUES ROW"),
            ],
        )
        .elsewhere(&SQLiteDialect {}, &[("INSERT OR REPLACE INTO t VALUES (1)", "0A000", "INSERT ... ON CONFLICT")])
        .elsewhere(
            &HiveDialect {},
            &[
                ("INSERT OVERWRITE TABLE t VALUES (1)", "0A000", "this form of INSERT"),
                ("INSERT INTO t PARTITION (a = 1) VALUES (1)", "0A000", "this form of INSERT"),
            ],
        )
        .elsewhere(
            &ClickHouseDialect {},
            &[("INSERT INTO TABLE FUNCTION remote('a') VALUES (1)", "0A000", "this form of INSERT")],
        )
        .elsewhere(&SnowflakeDialect {}, &[("UPDATE t FROM u SET a = 1", "0A000", "FROM before SET")])
        .elsewhere(&MsSqlDialect {}, &[("INSERT INTO t OUTPUT inserted.a VALUES (1)", "0A000", "INSERT ... RETURNING")])
        .none();
}

#[test]
fn copy() {
    Problems::default()
        .check(&[
            ("COPY t TO STDOUT", "0A000", "COPY ... TO"),
            ("COPY (SELECT 1) TO STDOUT", "0A000", "COPY ... TO"),
            ("COPY t FROM PROGRAM 'ls'", "0A000", "COPY FROM PROGRAM"),
            ("COPY t FROM STDOUT", "42601", "STDOUT"),
            ("COPY t FROM STDIN (FORMAT binary)", "0A000", "COPY format \"binary\""),
            ("COPY t FROM STDIN (FREEZE)", "0A000", "FREEZE"),
            ("COPY t FROM STDIN (FORMAT csv, FORCE_NULL (a))", "0A000", "FORCE_NULL"),
            ("COPY t FROM STDIN (FORMAT csv, FORCE_NOT_NULL (a))", "0A000", "FORCE_NOT_NULL"),
            ("COPY t FROM STDIN (FORMAT csv, FORCE_QUOTE (a))", "0A000", "FORCE_QUOTE"),
            ("COPY t FROM STDIN (ENCODING 'latin1')", "0A000", "encoding \"latin1\""),
            ("COPY t FROM STDIN BINARY", "0A000", "binary COPY"),
            ("COPY t FROM STDIN CSV FORCE NOT NULL a", "0A000", "FORCE"),
            (
                "COPY t FROM STDIN (FORMAT csv, DELIMITER E'\\n')",
                "22023",
                "delimiter must be a single one-byte character",
            ),
            ("COPY t FROM STDIN (FORMAT csv, QUOTE E'\\r')", "22023", "quote must be a single one-byte character"),
            ("COPY t FROM STDIN (FORMAT csv, DELIMITER 'ab')", "42601", "Expect a char"),
            ("COPY t FROM STDIN (QUOTE '\"')", "0A000", "QUOTE or ESCAPE outside CSV"),
            ("COPY t FROM STDIN (FORMAT csv, DELIMITER '\"')", "22023", "must be different"),
        ])
        .elsewhere(
            &GenericDialect {},
            &[
                ("COPY t FROM STDIN;\n1\t2\n\\.", "0A000", "data inside the statement"),
                ("COPY t FROM 's3://x' GZIP", "0A000", "the COPY option"),
            ],
        )
        .none();
}

#[test]
fn queries() {
    Problems::default()
        .check(&[
            ("WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r", "0A000", "WITH RECURSIVE"),
            ("WITH r AS MATERIALIZED (SELECT 1) SELECT * FROM r", "0A000", "MATERIALIZED"),
            ("WITH r AS (INSERT INTO t VALUES (1)) SELECT 1", "0A000", "a data-changing statement inside WITH"),
            ("SELECT * FROM t FOR UPDATE", "0A000", "FOR UPDATE"),
            ("SELECT * FROM t FOR SHARE SKIP LOCKED", "0A000", "FOR UPDATE/SHARE"),
            ("SELECT * FROM t FETCH FIRST 3 ROWS WITH TIES", "0A000", "FETCH FIRST with TIES"),
            ("SELECT * FROM t FETCH FIRST 3 PERCENT ROWS ONLY", "0A000", "FETCH FIRST with TIES or PERCENT"),
            ("SELECT 1 MINUS SELECT 1", "0A000", "MINUS"),
            ("TABLE t", "42601", "syntax error"),
            ("SELECT * INTO u FROM t", "0A000", "SELECT ... INTO"),
            ("SELECT a FROM t QUALIFY row_number() OVER () = 1", "0A000", "QUALIFY"),
            ("SELECT * FROM generate_series(1, 2)", "0A000", "a function in FROM"),
            ("SELECT * FROM t TABLESAMPLE BERNOULLI (1)", "0A000", "TABLESAMPLE"),
            ("SELECT * FROM t, LATERAL (SELECT 1) x", "0A000", "LATERAL"),
            ("SELECT * FROM unnest(ARRAY[1])", "0A000", "in FROM"),
            ("SELECT * FROM t AS x (a int)", "0A000", "a type in a table's alias"),
            ("SELECT a FROM t GROUP BY ALL", "0A000", "GROUP BY ALL"),
            ("SELECT 1 UNION BY NAME SELECT 2", "0A000", "UNION BY NAME"),
            ("SELECT (SELECT a FROM t FOR UPDATE)", "0A000", "FOR UPDATE"),
            ("SELECT * FROM (SELECT a FROM t FOR UPDATE) x", "0A000", "FOR UPDATE"),
            ("SELECT 1 WHERE EXISTS (SELECT a FROM t FOR UPDATE)", "0A000", "FOR UPDATE"),
        ])
        .elsewhere(
            &GenericDialect {},
            &[
                ("SELECT TOP 3 a FROM t", "0A000", "SELECT TOP"),
                ("SELECT a FROM t LIMIT 1, 2", "0A000", "LIMIT offset, count"),
                ("FROM t SELECT a", "0A000", "FROM before SELECT"),
                ("FROM t", "0A000", "FROM before SELECT"),
                ("SELECT * EXCLUDE (a) FROM t", "0A000", "* with EXCEPT"),
                ("SELECT t.* EXCEPT (a) FROM t", "0A000", "* with EXCEPT"),
                ("SELECT * FROM t SEMI JOIN u ON t.a = u.a", "0A000", "SEMI JOIN and ANTI JOIN"),
                ("SELECT * FROM t LEFT ANTI JOIN u ON t.a = u.a", "0A000", "SEMI JOIN and ANTI JOIN"),
                ("SELECT * FROM t CROSS APPLY u", "0A000", "this kind of join"),
                ("SELECT a FROM t GROUP BY a WITH ROLLUP", "0A000", "GROUP BY ... WITH"),
                ("SELECT a FROM t SORT BY a", "0A000", "another SQL dialect"),
                ("SELECT a FROM t CLUSTER BY a", "0A000", "another SQL dialect"),
                ("SELECT a FROM t DISTRIBUTE BY a", "0A000", "another SQL dialect"),
                ("SELECT a FROM t LATERAL VIEW explode(b) x", "0A000", "another SQL dialect"),
                ("SELECT a FROM t START WITH a = 1 CONNECT BY PRIOR a = b", "0A000", "another SQL dialect"),
                ("SELECT * FROM t PIVOT (sum(a) FOR b IN (1, 2))", "0A000", "in FROM"),
                ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS true)", "0A000", "in FROM"),
            ],
        )
        .elsewhere(
            &ClickHouseDialect {},
            &[
                ("SELECT a FROM t LIMIT 1 BY a", "0A000", "LIMIT ... BY"),
                ("SELECT a FROM t ORDER BY a WITH FILL", "0A000", "WITH FILL"),
                ("SELECT a FROM t ORDER BY a INTERPOLATE (a)", "0A000", "INTERPOLATE"),
                ("SELECT a FROM t PREWHERE a > 1", "0A000", "another SQL dialect"),
                ("SELECT a FROM t SETTINGS max_threads = 1", "0A000", "FOR, SETTINGS, FORMAT"),
                ("SELECT a FROM t FORMAT JSON", "0A000", "FOR, SETTINGS, FORMAT"),
                ("SELECT * FROM t GLOBAL JOIN u ON t.a = u.a", "0A000", "GLOBAL JOIN"),
            ],
        )
        .elsewhere(
            &MsSqlDialect {},
            &[
                ("SELECT a FROM t FOR JSON AUTO", "0A000", "FOR, SETTINGS, FORMAT"),
                ("SELECT a FROM t WITH (NOLOCK)", "0A000", "a hint, version, partition or path"),
            ],
        )
        .elsewhere(
            &BigQueryDialect {},
            &[
                ("SELECT AS STRUCT 1", "0A000", "another SQL dialect"),
                ("SELECT a FROM t |> WHERE a > 1", "0A000", "pipe operator"),
                ("SELECT * FROM UNNEST([1]) WITH OFFSET", "0A000", "in FROM"),
            ],
        )
        .elsewhere(
            &MySqlDialect {},
            &[
                ("SELECT SQL_NO_CACHE a FROM t", "0A000", "another SQL dialect"),
                ("SELECT 1 DIV 2", "0A000", "the operator"),
            ],
        )
        .elsewhere(&OracleDialect {}, &[("SELECT /*+ FULL(t) */ a FROM t", "0A000", "another SQL dialect")])
        .elsewhere(
            &DuckDbDialect {},
            &[("SELECT * FROM t ASOF JOIN u MATCH_CONDITION (a > b)", "0A000", "kind of join")],
        )
        .none();
}

#[test]
fn expressions() {
    Problems::default()
        .check(&[
            ("SELECT a LIKE ANY (b) FROM t", "0A000", "an array that is not written out"),
            ("SELECT a LIKE ANY (SELECT 'x') ESCAPE '!' FROM t", "0A000", "LIKE ANY with ESCAPE"),
            ("SELECT a LIKE ALL ('{x}') FROM t", "0A000", "LIKE ALL"),
            ("SELECT a = ANY ($1) FROM t", "0A000", "an array that is not written out"),
            ("SELECT a > ALL (NULL) FROM t", "0A000", "an array that is not written out"),
            ("SELECT a > ALL (SELECT b FROM t FOR UPDATE) FROM t", "0A000", "FOR UPDATE"),
            ("SELECT a ~ ANY (SELECT 'x') FROM t", "0A000", "a regular expression with ANY or ALL"),
            ("SELECT a = ANY (ARRAY[ARRAY[1]]) FROM t", "0A000", "the expression"),
            ("SELECT a = ANY ('{1') FROM t", "22P02", "malformed array literal"),
            ("SELECT (a, b) < ANY (SELECT 1, 2) FROM t", "0A000", "this comparison of a row with ANY or ALL"),
            ("SELECT (a, b) = ALL (SELECT 1, 2) FROM t", "0A000", "this comparison of a row with ANY or ALL"),
            ("SELECT (a, b) = ANY (ARRAY[1]) FROM t", "0A000", "ANY and ALL of a row and an array"),
            ("SELECT (a, b) = (SELECT 1, 2) FROM t", "0A000", "the operator = of a row"),
            ("SELECT a COLLATE \"de_DE\" FROM t", "0A000", "COLLATE"),
            ("SELECT a SIMILAR TO 'x' FROM t", "0A000", "SIMILAR TO"),
            ("SELECT a AT TIME ZONE 'UTC' FROM t", "0A000", "AT TIME ZONE"),
            ("SELECT ARRAY[1, 2]", "0A000", "the expression"),
            ("SELECT a[1] FROM t", "0A000", "the expression"),
            ("SELECT ~ 5", "0A000", "the operator ~"),
            ("SELECT |/ 25", "0A000", "the operator |/"),
            ("SELECT a @> b FROM t", "0A000", "the operator @>"),
            ("SELECT a -> 'b' FROM t", "0A000", "the operator ->"),
            ("SELECT 1 OPERATOR(other.+) 2", "0A000", "OPERATOR(...)"),
            ("SELECT a::timestamptz FROM t", "0A000", "timestamp with time zone"),
            ("SELECT CAST(a AS int[]) FROM t", "0A000", "type INT[]"),
            ("SELECT json '{}'", "0A000", "type JSON"),
            ("SELECT x'1f'", "0A000", "the literal"),
            ("SELECT $0", "42P02", "there is no parameter $0"),
            ("SELECT $70000", "42P02", "there is no parameter $70000"),
            ("SELECT $name", "42P02", "there is no parameter $name"),
            ("SELECT interval '1' year to month", "0A000", "INTERVAL"),
            ("SELECT count(t.*) FROM t", "0A000", "count(table.*)"),
            ("SELECT sum(a) OVER (ORDER BY b COLLATE \"de_DE\") FROM t", "0A000", "COLLATE"),
            ("SELECT sum(a) FILTER (WHERE b = ANY (c)) FROM t", "0A000", "ANY and ALL"),
            ("SELECT sum(a) OVER w FROM t WINDOW w AS (PARTITION BY ARRAY[1])", "0A000", "the expression"),
            ("SELECT CASE WHEN a = ANY (b) THEN 1 END FROM t", "0A000", "ANY and ALL"),
            ("SELECT 1 WHERE a IN (SELECT b FROM t FOR UPDATE)", "0A000", "FOR UPDATE"),
            ("SELECT a FROM t GROUP BY ROLLUP (ARRAY[1])", "0A000", "the expression"),
            ("SELECT a FROM t LIMIT ARRAY[1]", "0A000", "the expression"),
            ("SELECT a FROM t OFFSET ARRAY[1]", "0A000", "the expression"),
        ])
        .elsewhere(
            &GenericDialect {},
            &[
                ("SELECT TRY_CAST(a AS int)", "0A000", "TRY_CAST"),
                ("SELECT CAST(a AS date FORMAT 'x')", "0A000", "CAST with FORMAT"),
                ("SELECT CEIL(a TO DAY)", "0A000", "CEIL or FLOOR with a unit"),
                ("SELECT {d '2024-01-01'}", "0A000", "ODBC escapes"),
                ("SELECT {fn now()}", "0A000", "ODBC escapes"),
                ("SELECT a <=> b", "0A000", "the operator"),
                ("SELECT {'a': 1}", "0A000", "the expression"),
                ("SELECT listagg(a, ',' ON OVERFLOW TRUNCATE WITH COUNT) WITHIN GROUP (ORDER BY a)", "0A000", "inside"),
            ],
        )
        .elsewhere(&ClickHouseDialect {}, &[("SELECT quantile(0.5)(a)", "0A000", "parameters before arguments")])
        .elsewhere(&BigQueryDialect {}, &[("SELECT SAFE_CAST(a AS int)", "0A000", "TRY_CAST")])
        .none();
}

/// What looks like it might be refused and is not.
#[test]
fn what_passes() {
    for sql in [
        "SELECT a.b, \"C\" FROM a WHERE x IS NOT DISTINCT FROM 3 AND y BETWEEN 1 AND 2 OR NOT z",
        "SELECT extract(year FROM d), position('a' IN b), substring(a FROM 1 FOR 2), trim(BOTH 'x' FROM a), ceil(x)",
        "SELECT overlay(a PLACING 'b' FROM 1), a ILIKE 'x', a ~ 'x', a !~* 'y', interval '1 day', date '2024-01-01'",
        "SELECT sum(a) FILTER (WHERE b) OVER (PARTITION BY c ORDER BY d ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)",
        "SELECT a FROM t GROUP BY GROUPING SETS ((a), ()) HAVING count(*) > 1",
        "SELECT a FROM t ORDER BY a DESC NULLS LAST LIMIT 3 OFFSET 1",
        "SELECT DISTINCT ON (a) a, b FROM t JOIN u USING (a) NATURAL JOIN v CROSS JOIN w",
        "WITH x (a) AS (SELECT 1) SELECT * FROM x EXCEPT SELECT 2 INTERSECT SELECT 3 UNION ALL SELECT 4",
        "VALUES (1, 'a'), (2, E'\\n')",
        "SELECT 1 INTERSECT ALL SELECT 2 EXCEPT ALL SELECT 3",
        "SELECT a = ANY (SELECT b), a > ALL ((SELECT b)), a LIKE ANY (SELECT b)",
        "SELECT a = ANY (ARRAY[1, $1]), a <> ALL ('{1}'), a < ANY ('{1}'::int[])",
        "SELECT (a, b) IN (SELECT c, d), (a, b) <> ALL (SELECT c, d), a IN ((SELECT 1), 2), a NOT IN ((SELECT 1) + 1)",
        "SELECT a FROM t ORDER BY b OFFSET 1 ROW FETCH NEXT 2 ROWS ONLY",
        "SELECT a OPERATOR(pg_catalog.~) 'x' COLLATE pg_catalog.default, b COLLATE \"C\", c COLLATE \"POSIX\"",
        "SELECT * FROM eris.public.t",
        "INSERT INTO t (a, b) VALUES (DEFAULT, $1)",
        "UPDATE t AS x SET a = DEFAULT, (b, c) = (1, 2) FROM u WHERE x.a = u.a",
        "DELETE FROM t AS x USING u, v WHERE x.a = u.a",
        "CREATE UNIQUE INDEX IF NOT EXISTS i ON t USING btree (a ASC NULLS LAST, b)",
        "TRUNCATE TABLE a, b CONTINUE IDENTITY RESTRICT",
        "DROP TABLE IF EXISTS a, b RESTRICT",
        "BEGIN TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE",
        "EXPLAIN (ANALYZE, VERBOSE OFF, COSTS OFF, TIMING OFF) SELECT 1",
        "COPY t (a) FROM STDIN WITH (FORMAT csv, DELIMITER ';', QUOTE '''', ESCAPE '\\', NULL 'x')",
        "COPY t (a) FROM STDIN WITH (HEADER, ENCODING 'UTF8')",
        "COPY t FROM '/tmp/x' DELIMITER '|' CSV HEADER QUOTE '\"'",
        "DEALLOCATE PREPARE ALL",
        "DISCARD ALL",
        "SET SESSION layout TO column",
        "SHOW TRANSACTION ISOLATION LEVEL",
    ] {
        if let Err(error) = lowered(sql) {
            panic!("{sql}\n{error}");
        }
    }
}
