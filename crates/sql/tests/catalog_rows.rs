//! Names as rows: a second database on the same engine finds every table as the first one left it.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fmt::Write;
use std::sync::Arc;

use eris_engine::{ContainerSpec, Engine, EngineOptions, Partitioning, Read};
use eris_platform::{RealEnv, SeededRandom};
use eris_sql::catalog::CATALOG_CONTAINER;
use eris_sql::{Database, DatabaseOptions, SqlError};
use eris_storage::{
    Attribute, AttributeId, Batch, Comparison, Condition, ContainerId, DataType, Layout, Predicate, ReadRequest,
    Schema, SchemaVersion, Test, Value,
};
use support::{Client, Instance};

fn instance() -> Instance {
    Instance::start(2, 1, DatabaseOptions::default())
}

/// Opens the database of the same engine again.
fn reopen(instance: &mut Instance) -> Result<(), SqlError> {
    let engine = instance.database.engine().clone();
    instance.database = Database::new(engine, DatabaseOptions::default())?;
    Ok(())
}

/// What clients can find out about names.
const NAMES: [&str; 7] = [
    "SELECT * FROM information_schema.tables ORDER BY table_name",
    "SELECT * FROM information_schema.columns ORDER BY table_name, ordinal_position",
    "SELECT oid, relname, relnamespace, relkind, relhasindex, relnatts FROM pg_class ORDER BY oid",
    "SELECT * FROM pg_attribute ORDER BY attrelid, attnum",
    "SELECT * FROM pg_attrdef ORDER BY adrelid, adnum",
    "SELECT *, pg_get_indexdef(indexrelid) FROM pg_index ORDER BY indexrelid",
    "SELECT *, pg_get_constraintdef(oid) FROM pg_constraint ORDER BY oid",
];

/// Names, rows and plans as text.
fn picture(client: &mut Client) -> Vec<String> {
    let mut picture = Vec::new();
    for query in NAMES {
        picture.push(query.to_string());
        picture.extend(client.rows(query));
    }
    for table in client.rows("SELECT table_name FROM information_schema.tables ORDER BY 1") {
        let select = format!("SELECT * FROM \"{}\"", table.replace('"', "\"\""));
        let mut rows = client.rows(&select);
        rows.sort();
        picture.push(select.clone());
        picture.extend(rows);
        picture.extend(client.rows(&format!("EXPLAIN {select}")));
    }
    picture
}

/// Asserts that opening again changes nothing; returns a client of the database that was opened.
fn survives(instance: &mut Instance) -> Client {
    let before = picture(&mut instance.session());
    reopen(instance).unwrap();
    let mut client = instance.session();
    let after = picture(&mut client);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before, after);
    }
    assert_eq!(before.len(), after.len());
    client
}

fn on_engine<T: Send + 'static>(engine: &Engine, future: impl Future<Output = T> + Send + 'static) -> T {
    engine.block_on(future).expect("the engine runs")
}

/// The rows of the catalog.
fn catalog_rows(engine: &Engine) -> Vec<[String; 3]> {
    let task = engine.clone();
    let batches = on_engine(engine, async move {
        let desired = [0, 1, 2].map(AttributeId).into();
        let request = ReadRequest { predicate: Predicate::all(), desired, order: None };
        task.begin().read(&Read { container: CATALOG_CONTAINER, request }).await.expect("the catalog is read")
    });
    let text = |batch: &Batch, row, column| match batch.value(row, column) {
        Value::Text(text) => text.to_string(),
        other => panic!("{other} is in the catalog"),
    };
    let rows = batches.iter().flat_map(|batch| (0..batch.rows).map(move |row| (batch, row)));
    let mut rows: Vec<_> = rows.map(|(batch, row)| [0, 1, 2].map(|column| text(batch, row, column))).collect();
    rows.sort();
    rows
}

/// Writes a row of the catalog behind SQL's back; without a definition it goes.
fn write_row(engine: &Engine, kind: &str, name: &str, definition: Option<&str>) {
    let text = |text: &str| Value::Text(text.into());
    let equal = |attribute, value| Condition { attribute, test: Test::Compare(Comparison::Equal, value) };
    let conditions = [equal(AttributeId(0), text(kind)), equal(AttributeId(1), text(name))];
    let request = ReadRequest { predicate: Predicate::new(conditions), desired: Arc::new([]), order: None };
    let row = definition.map(|definition| vec![text(kind), text(name), text(definition)]);
    let task = engine.clone();
    on_engine(engine, async move {
        let mut transaction = task.begin();
        transaction.delete(&Read { container: CATALOG_CONTAINER, request }, None).await.expect("the row goes");
        transaction.commit().await.expect("nobody else writes");
        if let Some(row) = row {
            let mut transaction = task.begin();
            let batch = Batch::from_rows(&[DataType::Text; 3], &[row]);
            transaction.insert(CATALOG_CONTAINER, batch).await.expect("the row comes");
            transaction.commit().await.expect("nobody else writes");
        }
    });
}

fn definition_of(engine: &Engine, table: &str) -> String {
    let rows = catalog_rows(engine);
    let row = rows.into_iter().find(|[kind, name, _]| kind == "table" && name == table);
    let [_, _, definition] = row.unwrap_or_else(|| panic!("{table} has no row"));
    definition
}

fn container_of(instance: &Instance, table: &str) -> ContainerId {
    instance.database.catalog().current().find(table).expect("the table is there").container()
}

/// Every type of a column, with defaults in every form.
const TYPES: [(&str, &[&str]); 22] = [
    ("boolean", &["true", "'off'", "NOT true", "1 < 2", "NULL"]),
    ("smallint", &["0", "-32768", "32767", "'7'", "'7'::smallint", "NULL"]),
    ("integer", &["7", "-7", "+7", "2 + 3 * 4", "'-2147483648'", "CAST('5' AS integer)", "length('äöü')", "1.5"]),
    ("bigint", &["-9223372036854775808", "9223372036854775807", "1::bigint", "abs(-5)"]),
    ("real", &["1.5", "'NaN'", "'-Infinity'", "1e-38", "'3.4028235e38'", "0.1", "'-0'"]),
    ("double precision", &["0.1", "'NaN'", "'Infinity'", "5e-324", "1.7976931348623157e308", "1e0 / 3", "sqrt(2)"]),
    ("numeric", &["1.5", "-0.0000000001", "9999999999999999999999999999.9999999999", "1", "round(2.567, 2)"]),
    ("numeric(5,2)", &["1.005", "-999.99", "0", "'12.3'"]),
    ("numeric(38,0)", &["99999999999999999999999999999999999999", "-1"]),
    ("numeric(38,38)", &["0.5", "-0.00000000000000000000000000000000000001"]),
    ("numeric(3)", &["999"]),
    ("date", &["'2024-02-29'", "date '0001-01-01'", "'9999-12-31'", "current_date", "'2024-01-01'::date + 30"]),
    (
        "timestamp",
        &[
            "now()",
            "current_timestamp",
            "now() - interval '1 day'",
            "'2024-02-29 12:34:56.789012'",
            "timestamp '1969-12-31 23:59:59.999999'",
            "date_trunc('hour', now())",
        ],
    ),
    (
        "text",
        &[
            "''",
            "'it''s'",
            "E'tab\\tline\\nback\\\\slash'",
            "$$dollar's$$",
            "'NULL'",
            "'{\"a\": 1}'",
            "'\"quoted\" \\u0041 \u{1F600}'",
            "upper('x') || 'y'",
            "current_user",
            "coalesce(NULL, current_user, 'it''s')",
            "CASE WHEN now() < '2000-01-01' THEN E'a\\'b' ELSE 'c' END",
            "CAST(now() AS date)::text || E'\\'\\\\'",
        ],
    ),
    ("varchar", &["'x'", "current_database()"]),
    ("varchar(5)", &["'abcde'", "'abc  '", "'äöüßé'"]),
    ("char", &["'x'"]),
    ("char(5)", &["'ab'", "'ab   '", "''"]),
    ("bpchar", &["'ab  '"]),
    ("bytea", &["'\\x00ff'", "''", "'a\\\\b\\001'"]),
    ("float(24)", &["1"]),
    ("float", &["1"]),
];

#[test]
fn every_type_and_every_default_survives() {
    let mut instance = instance();
    let mut client = instance.session();
    let mut columns = "id int PRIMARY KEY".to_string();
    let mut count = 0;
    for (sql_type, defaults) in TYPES {
        write!(columns, ", c{count} {sql_type}, c{} {sql_type} NOT NULL DEFAULT {}", count + 1, defaults[0]).unwrap();
        count += 2;
        for default in defaults {
            write!(columns, ", c{count} {sql_type} DEFAULT {default}").unwrap();
            count += 1;
        }
    }
    client.ok(&format!("CREATE TABLE every ({columns})"));
    client.ok("INSERT INTO every (id) VALUES (1)");
    drop(client);
    let mut client = survives(&mut instance);
    client.ok("INSERT INTO every (id) VALUES (2)");
    let row = |client: &mut Client, id| {
        let answer = client.ok(&format!("SELECT * FROM every WHERE id = {id}"));
        (answer.columns, answer.rows.into_iter().next().unwrap())
    };
    let ((names, first), (_, second)) = (row(&mut client, 1), row(&mut client, 2));
    assert_eq!(names.len(), count + 1);
    let momentary = client.rows(
        "SELECT column_name FROM information_schema.columns \
         WHERE lower(column_default) ~ 'now\\(|current_timestamp|current_date'",
    );
    assert_eq!(momentary.len(), 8, "{momentary:?}");
    for ((name, before), after) in names.iter().zip(&first).zip(&second).skip(1) {
        if momentary.contains(name) {
            assert!(before.is_some() && after.is_some(), "{name}");
        } else {
            assert_eq!(before, after, "{name}");
        }
    }
    // Nulls are refused where they were before.
    assert_eq!(client.state("INSERT INTO every (id, c1) VALUES (3, NULL)"), "23502");
    assert_eq!(client.state("INSERT INTO every (id) VALUES (2)"), "23505");
    // The definition is the same text, made from what was read.
    let definition = definition_of(instance.database.engine(), "every");
    client.ok("CREATE INDEX later ON every (c0)");
    let with_index = definition_of(instance.database.engine(), "every");
    let (columns, _) = definition.split_once("\"indexes\"").unwrap();
    assert!(with_index.starts_with(columns), "{with_index}\n{columns}");
}

/// Values from all over their types, as defaults and back.
#[test]
fn values_survive_as_defaults() {
    let mut instance = instance();
    let mut random = SeededRandom::new(0xCA7A);
    let mut columns = "id int PRIMARY KEY".to_string();
    for number in 0..300 {
        let bits = random.next_u64();
        let (sql_type, value) = match number % 9 {
            0 => ("smallint", (bits as i16).to_string()),
            1 => ("integer", (bits as i32).to_string()),
            2 => ("bigint", (bits as i64).to_string()),
            3 => ("real", f32::from_bits(bits as u32).to_string()),
            4 => ("double precision", f64::from_bits(bits).to_string()),
            5 => ("numeric(38,12)", format!("{}.{:012}", bits as i64, bits % 1_000_000_000_000)),
            6 => ("date", format!("{:04}-{:02}-{:02}", 1 + bits % 9999, 1 + bits % 12, 1 + bits % 28)),
            7 => ("bytea", format!("\\x{bits:016x}")),
            _ => ("text", bits.to_le_bytes().map(|byte| char::from(byte % 127 + 1)).iter().collect()),
        };
        write!(columns, ", c{number} {sql_type} DEFAULT '{}'", value.replace('\'', "''")).unwrap();
    }
    let mut client = instance.session();
    client.ok(&format!("CREATE TABLE t ({columns})"));
    client.ok("INSERT INTO t (id) VALUES (1)");
    drop(client);
    let mut client = survives(&mut instance);
    client.ok("INSERT INTO t (id) VALUES (2)");
    let rows = client.ok("SELECT * FROM t ORDER BY id").rows;
    assert_eq!(rows[0][1..], rows[1][1..]);
}

#[test]
fn what_ddl_left_behind_survives() {
    let mut instance = instance();
    let mut client = instance.session();
    for sql in [
        "CREATE TABLE single (id int PRIMARY KEY, a text)",
        "CREATE TABLE pair (a int, b text, c int, CONSTRAINT \"Key of pair\" PRIMARY KEY (b, a), UNIQUE (b, c))",
        "CREATE TABLE heap (a int, b int)",
        "CREATE TABLE \"Mixed Case\" (\"Id\" int PRIMARY KEY, \"sélect\" text, \"a\"\"b\" int)",
        "CREATE TABLE 表 (键 int PRIMARY KEY, \"\u{1F600}\" text DEFAULT '\u{1F600}')",
        "CREATE TABLE rows_only (id int PRIMARY KEY, t text) WITH (layout = row, partitions = 3, segment_rows = 8)",
        "CREATE TABLE columns_only (id int) WITH (layout = column, partitions = 2)",
        "CREATE INDEX ON single (a)",
        "CREATE UNIQUE INDEX unique_c ON pair (c, b)",
        "CREATE INDEX gone ON pair (a)",
        "CREATE INDEX \"Over 键\" ON 表 (\"\u{1F600}\", 键)",
        "DROP INDEX gone",
        "CREATE INDEX after_gone ON pair (a, c)",
        "CREATE TABLE emptied (id int PRIMARY KEY, n int DEFAULT 5)",
        "CREATE INDEX emptied_n ON emptied (n)",
        "INSERT INTO emptied VALUES (1, 1)",
        "TRUNCATE emptied",
        "INSERT INTO emptied (id) VALUES (2)",
        "CREATE TABLE dropped (id int)",
        "DROP TABLE dropped",
        // One name, several tables.
        "CREATE TABLE again (a int)",
        "DROP TABLE again",
        "CREATE TABLE again (b text, a int PRIMARY KEY)",
        // In blocks.
        "BEGIN",
        "CREATE TABLE together (id int PRIMARY KEY, n int)",
        "INSERT INTO together VALUES (1, 10), (2, 20)",
        "CREATE INDEX together_n ON together (n)",
        "COMMIT",
        "BEGIN",
        "CREATE TABLE rolled_back (id int)",
        "DROP TABLE single",
        "CREATE INDEX rolled_back_n ON together (id, n)",
        "TRUNCATE together",
        "ROLLBACK",
        "BEGIN",
        "CREATE TABLE short_lived (id int)",
        "DROP TABLE short_lived",
        "DROP TABLE again",
        "CREATE TABLE again (only int)",
        "TRUNCATE again",
        "INSERT INTO again VALUES (3)",
        "COMMIT",
        // A text of several statements is one transaction.
        "CREATE TABLE in_text (id int PRIMARY KEY); INSERT INTO in_text VALUES (1); CREATE INDEX ON in_text (id)",
    ] {
        client.ok(sql);
    }
    assert_eq!(client.state("CREATE TABLE failed (id int); INSERT INTO failed VALUES (1 / 0)"), "22012");
    for sql in [
        "INSERT INTO single VALUES (1, 'a'), (2, 'b')",
        "INSERT INTO pair VALUES (1, 'x', 1), (2, 'x', 2)",
        "INSERT INTO heap VALUES (1, 1), (1, 1)",
        "INSERT INTO \"Mixed Case\" VALUES (1, 'é', 2)",
        "INSERT INTO 表 (键) VALUES (1)",
        "INSERT INTO rows_only SELECT a.id * 10 + b.id, 'x' FROM single a, single b",
        "INSERT INTO columns_only SELECT id FROM single",
    ] {
        client.ok(sql);
    }
    let plans = [
        "EXPLAIN SELECT * FROM single WHERE id = 1",
        "EXPLAIN SELECT * FROM single WHERE a = 'a'",
        "EXPLAIN SELECT * FROM pair WHERE b = 'x' AND a = 1",
        "EXPLAIN SELECT * FROM pair WHERE c = 1 AND b = 'x'",
        "EXPLAIN SELECT * FROM pair WHERE a = 1 AND c = 1",
        "EXPLAIN SELECT * FROM together WHERE n = 10",
        "EXPLAIN SELECT * FROM single JOIN together ON single.id = together.id WHERE n = 10",
        "EXPLAIN UPDATE together SET n = 1 WHERE id = 1",
    ];
    let before: Vec<_> = plans.iter().map(|plan| client.rows(plan)).collect();
    drop(client);
    for _ in 0..2 {
        let mut client = survives(&mut instance);
        for (plan, before) in plans.iter().zip(&before) {
            assert_eq!(client.rows(plan), *before, "{plan}");
        }
    }
    let mut client = instance.session();
    let tables = client.rows("SELECT table_name FROM information_schema.tables ORDER BY 1");
    let expected = [
        "Mixed Case",
        "again",
        "columns_only",
        "emptied",
        "heap",
        "in_text",
        "pair",
        "rows_only",
        "single",
        "together",
    ];
    assert_eq!(tables[..tables.len() - 1], expected);
    for (sql, state) in [
        ("INSERT INTO single VALUES (1, 'c')", "23505"),
        ("INSERT INTO pair VALUES (2, 'x', 7)", "23505"),
        ("INSERT INTO pair VALUES (7, 'x', 2)", "23505"),
        ("INSERT INTO pair VALUES (NULL, 'x', 9)", "23502"),
        ("CREATE TABLE single (a int)", "42P07"),
        ("CREATE INDEX single_pkey ON heap (a)", "42P07"),
        ("DROP INDEX pair_b_c_key", "2BP01"),
        ("DROP TABLE dropped", "42P01"),
    ] {
        assert_eq!(client.state(sql), state, "{sql}");
    }
    // And life goes on: what was there is changed, dropped, made anew.
    for sql in [
        "INSERT INTO emptied (id) VALUES (3)",
        "DROP INDEX unique_c",
        "CREATE INDEX unique_c ON pair (c)",
        "TRUNCATE pair",
        "INSERT INTO pair VALUES (1, 'x', 1)",
        "DROP TABLE single",
        "CREATE TABLE single (other int)",
        "DROP TABLE 表",
    ] {
        client.ok(sql);
    }
    drop(client);
    let mut client = survives(&mut instance);
    assert_eq!(client.rows("SELECT * FROM emptied ORDER BY id"), ["2|5", "3|5"]);
}

#[test]
fn the_widest_table_and_many_tables_survive() {
    let mut instance = instance();
    let mut client = instance.session();
    let columns: Vec<String> =
        (0..1_600).map(|number| format!("\"{}{number}\" varchar(99) DEFAULT 'ä{number}'", "ä".repeat(25))).collect();
    client.ok(&format!("CREATE TABLE wide ({}, PRIMARY KEY (\"{}7\"))", columns.join(", "), "ä".repeat(25)));
    client.ok(&format!("INSERT INTO wide (\"{}8\") VALUES ('x')", "ä".repeat(25)));
    for number in 0..200 {
        client.ok(&format!("CREATE TABLE t{number} (id int PRIMARY KEY, n int DEFAULT {number})"));
    }
    drop(client);
    let mut client = survives(&mut instance);
    client.ok("INSERT INTO t150 (id) VALUES (1)");
    assert_eq!(client.rows("SELECT n FROM t150"), ["150"]);
}

/// What a process leaves behind that ends in the middle of transactions.
#[test]
fn what_no_table_names_goes_when_the_database_is_opened() {
    let mut instance = instance();
    let engine = instance.database.engine().clone();
    // A container of a task, between those of SQL.
    let of_task = engine.next_container_id();
    engine.create_container(task_container(of_task)).unwrap();
    let mut client = instance.session();
    client.ok("CREATE TABLE kept (id int PRIMARY KEY, n int)");
    client.ok("CREATE TABLE dropped (id int)");
    client.ok("INSERT INTO kept VALUES (1, 1)");
    let before = picture(&mut client);
    client.ok("BEGIN");
    client.ok("CREATE TABLE never (id int PRIMARY KEY); INSERT INTO never VALUES (1)");
    client.ok("CREATE UNIQUE INDEX never_n ON kept (id, n)");
    client.ok("TRUNCATE dropped");
    let kept = container_of(&instance, "kept");
    let newest = engine.next_container_id().0;
    let made: Vec<ContainerId> = (kept.0 + 1..newest).map(ContainerId).collect();
    assert!(made.iter().all(|id| engine.container(*id).is_some()), "{made:?}");
    assert_eq!(engine.container(kept).unwrap().schema().indexes.len(), 2);
    // Nobody rolls back: the process has ended.
    std::mem::forget(client);
    reopen(&mut instance).unwrap();
    let mut client = instance.session();
    assert_eq!(picture(&mut client), before);
    let named = [kept, container_of(&instance, "dropped")];
    let left: Vec<_> = made.iter().filter(|id| engine.container(**id).is_some()).collect();
    assert_eq!(left, [&named[1]]);
    assert_eq!(engine.container(kept).unwrap().schema().indexes.len(), 1);
    assert!(engine.container(of_task).is_some(), "a task's container is not SQL's to drop");
    // The COMMIT of a DROP TABLE, and the process ends before the container goes.
    drop(client);
    write_row(&engine, "table", "dropped", None);
    reopen(&mut instance).unwrap();
    assert!(engine.container(named[1]).is_none());
    assert!(engine.container(kept).is_some() && engine.container(of_task).is_some());
    let kinds: Vec<_> = catalog_rows(&engine).into_iter().map(|[kind, name, _]| (kind, name)).collect();
    let row = |kind: &str, name: &str| (kind.to_string(), name.to_string());
    let expected = [row("catalog", "format"), row("container", &kept.0.to_string()), row("table", "kept")];
    assert_eq!(kinds, expected, "records of containers go with them");
}

fn task_container(id: ContainerId) -> ContainerSpec {
    let attribute = Attribute { name: "a".into(), data_type: DataType::Int64, nullable: false };
    let schema = Schema {
        container: id,
        version: SchemaVersion(1),
        attributes: [attribute].into(),
        indexes: [].into(),
        layout: Layout::Default,
        physical: None,
        segment_rows: 1 << 10,
    };
    ContainerSpec { schema: Arc::new(schema), partitioning: Partitioning::Size { partitions: 1 } }
}

/// Records of containers do not pile up, whatever becomes of the tables.
#[test]
fn records_of_containers_go_with_them() {
    let instance = instance();
    let mut client = instance.session();
    for number in 0..20 {
        client.ok("CREATE TABLE t (id int)");
        client.ok("TRUNCATE t");
        client.ok(if number % 2 == 0 { "DROP TABLE t" } else { "BEGIN" });
        if number % 2 == 1 {
            client.ok("CREATE TABLE rolled_back (id int)");
            client.ok("ROLLBACK");
            client.ok("DROP TABLE t");
        }
    }
    let rows = catalog_rows(instance.database.engine());
    assert!(rows.len() <= 4, "{rows:?}");
}

#[test]
fn rows_that_cannot_be_understood_are_refused() {
    let mut instance = instance();
    let engine = instance.database.engine().clone();
    let mut client = instance.session();
    client.ok("CREATE TABLE t (id int PRIMARY KEY, n numeric(5,2) DEFAULT 1.5, at timestamp DEFAULT now())");
    client.ok("CREATE TABLE u (id int PRIMARY KEY, t text)");
    client.ok("BEGIN; CREATE TABLE orphan (id int)");
    std::mem::forget(client);
    let (good, other) = (definition_of(&engine, "t"), definition_of(&engine, "u"));
    let containers = [container_of(&instance, "t").0, container_of(&instance, "u").0].map(|id| id.to_string());
    let replaced = |from: &str, to: &str| {
        assert!(good.contains(from), "{from} is not in {good}");
        good.replacen(from, to, 1)
    };
    let container = |id: &str| replaced(&format!("\"container\":{}", containers[0]), &format!("\"container\":{id}"));
    let broken = [
        (String::new(), "XX001", "definition cannot be read"),
        ("nonsense".to_string(), "XX001", "definition cannot be read"),
        ("{}".to_string(), "XX001", "missing field `format`"),
        (good[..good.len() / 2].to_string(), "XX001", "definition cannot be read"),
        (format!("{good}}}"), "XX001", "trailing"),
        (replaced("\"format\":1", "\"format\":2"), "0A000", "has format 2; this version of ERIS reads 1"),
        ("{\"format\":3,\"shape\":{}}".to_string(), "0A000", "has format 3"),
        (replaced("\"constraints\":1", "\"constraints\":1,\"colour\":7"), "XX001", "unknown field `colour`"),
        (replaced("\"constraints\":1", "\"constraints\":2"), "XX001", "2 of its 1 indexes stand for constraints"),
        (replaced("\"constraints\":1", "\"constraints\":-1"), "XX001", "definition cannot be read"),
        (replaced("\"integer\"", "\"uuid\""), "XX001", "unknown variant `uuid`"),
        (replaced("\"integer\"", "\"bigint\""), "XX001", "column \"id\" (Int64"),
        (replaced("\"scale\":2", "\"scale\":3"), "XX001", "contradicts it: column \"n\""),
        (replaced("\"name\":\"n\"", "\"name\":\"m\""), "XX001", "contradicts it: column \"m\""),
        (replaced("\"not_null\":false", "\"not_null\":true"), "XX001", "contradicts it: column \"n\""),
        (replaced("\"value\":\"1.50\"", "\"value\":\"one\""), "XX001", "default of column \"n\" cannot be read"),
        (replaced("\"expression\":\"now()\"", "\"expression\":\"now(\""), "XX001", "default of column \"at\""),
        (replaced("now()", "now() FROM t"), "XX001", "default of column \"at\""),
        (replaced("now()", "1; DROP TABLE t"), "XX001", "default of column \"at\""),
        (replaced("\"expression\"", "\"formula\""), "XX001", "unknown variant `formula`"),
        (replaced("\"id\":0", "\"id\":9"), "XX001", "no such index as \"t_pkey\""),
        (replaced("\"columns\":[0]", "\"columns\":[1]"), "XX001", "no such index"),
        (replaced("\"columns\":[0]", "\"columns\":[99]"), "XX001", "no such index"),
        (replaced("\"unique\":true", "\"unique\":false"), "XX001", "no such index"),
        (replaced("\"kind\":\"ordered\"", "\"kind\":\"hash\""), "XX001", "no such index"),
        (container("999999"), "XX001", "container 999999 does not exist"),
        (container("1"), "XX001", "Container 1 contradicts it: column \"id\""),
        (container(&containers[1]), "XX001", "contradicts it: 2 attributes, not 3 columns"),
        (other.clone(), "XX001", "Another table has its container"),
    ];
    let before = engine.partitions().len();
    let mut refused = |kind: &str, name: &str, definition: &str, state: &str, what: &str| {
        let error = reopen(&mut instance).expect_err(definition);
        let text = error.to_string();
        assert_eq!(error.sqlstate.as_str(), state, "{definition}: {text}");
        assert!(text.contains(what) && text.contains(&format!("{kind} \"{name}\"")), "{definition}: {text}");
        assert!(error.hint.is_some(), "{text}");
        assert_eq!(engine.partitions().len(), before, "nothing is dropped by a database that does not open");
    };
    for (definition, state, what) in &broken {
        write_row(&engine, "table", "t", Some(definition));
        // The second of two tables with one container is the one that is told of.
        let name = if *definition == other { "u" } else { "t" };
        refused("table", name, definition, state, what);
    }
    write_row(&engine, "table", "t", Some(&good));
    let more = [
        ("table", "t2", good.as_str(), "XX001", "Another table has its container"),
        ("table", "\"", "\u{0001}", "XX001", "definition cannot be read"),
        ("view", "v", "{\"format\":1}", "XX001", "knows nothing of that kind"),
        ("catalog", "other", "{\"format\":1}", "XX001", "knows nothing of that kind"),
        ("container", "seven", "{}", "XX001", "no number"),
        ("container", "1", "{}", "XX001", "no number"),
        ("container", "4294967296", "{}", "XX001", "no number"),
    ];
    for (kind, name, definition, state, what) in more {
        write_row(&engine, kind, name, Some(definition));
        refused(kind, name, definition, state, what);
        write_row(&engine, kind, name, None);
    }
    for (definition, state, what) in [
        (Some("{\"format\":2}"), "0A000", "has format 2"),
        (Some("1"), "XX001", "cannot be read"),
        (None, "XX001", "missing"),
    ] {
        write_row(&engine, "catalog", "format", definition);
        refused("catalog", "format", definition.unwrap_or_default(), state, what);
    }
    write_row(&engine, "catalog", "format", Some("{\"format\":1}"));
    reopen(&mut instance).unwrap();
    assert_eq!(instance.session().rows("SELECT relname FROM pg_class WHERE relkind = 'r' ORDER BY 1"), ["t", "u"]);
    assert_eq!(engine.partitions().len(), before - 1, "the table that was never committed");
}

#[test]
fn the_catalog_needs_the_first_container() {
    for taken in [true, false] {
        let options = EngineOptions { workers: 1, nodes: 1, ..EngineOptions::default() };
        let engine = Engine::start(Arc::new(RealEnv::new()), options).unwrap();
        let id = engine.next_container_id();
        if taken {
            engine.create_container(task_container(id)).unwrap();
        }
        let error = Database::new(engine.clone(), DatabaseOptions::default()).expect_err("the place is taken");
        assert_eq!(error.sqlstate.as_str(), "55000", "{error}");
        assert_eq!(engine.container(id).is_some(), taken);
        engine.shutdown();
    }
}

/// The catalog is no table of users: statements cannot name it, and the engine's views say what it is.
#[test]
fn the_catalog_shows_as_the_system_that_it_is() {
    let instance = instance();
    let mut client = instance.session();
    for query in NAMES.iter().filter(|query| !query.contains("pg_class")) {
        assert_eq!(client.rows(query), Vec::<String>::new(), "{query}");
    }
    assert_eq!(client.rows("SELECT relname FROM pg_class WHERE relkind <> 'v'"), Vec::<String>::new());
    client.ok("CREATE TABLE t (id int PRIMARY KEY)");
    client.ok("INSERT INTO t VALUES (1), (2)");
    for view in ["partitions", "segments"] {
        let sums = format!("SELECT system, count(*), sum(rows) FROM eris.{view} GROUP BY system ORDER BY system");
        let rows = client.rows(&sums);
        assert_eq!((rows.len(), &*rows[0]), (2, "f|1|2"), "{rows:?}");
    }
    assert_eq!(client.rows("SELECT DISTINCT container FROM eris.partitions WHERE system"), ["1"]);
}
