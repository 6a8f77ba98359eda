//! Opening a database on an engine that has a catalog: what an earlier process left behind goes, and what cannot be
//! understood is refused.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use eris_engine::{Engine, EngineOptions};
use eris_platform::RealEnv;
use eris_sql::catalog::CATALOG_CONTAINER;
use eris_sql::{Database, DatabaseOptions};
use eris_storage::ContainerId;
use support::Instance;
use support::catalog::{catalog_rows, container_of, definition_of, names, reopen, task_container, write_row};

fn instance() -> Instance {
    Instance::start(2, 1, DatabaseOptions::default())
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
    let before = names(&mut client);
    client.ok("BEGIN");
    client.ok("CREATE TABLE never (id int PRIMARY KEY); INSERT INTO never VALUES (1)");
    client.ok("CREATE UNIQUE INDEX never_n ON kept (id, n)");
    client.ok("TRUNCATE dropped");
    let kept = container_of(&instance, "kept");
    let newest = engine.next_container_id().0;
    let made: Vec<ContainerId> = (kept.0 + 1..newest).map(ContainerId).collect();
    assert!(made.iter().all(|id| engine.container(*id).is_some()), "{made:?}");
    assert_eq!(engine.container(kept).unwrap().schema().indexes.len(), 2);
    // Nothing rolls back: the process has ended. (Here its table locks stay, so `dropped` is not read below.)
    std::mem::forget(client);
    reopen(&mut instance).unwrap();
    let mut client = instance.session();
    assert_eq!(names(&mut client), before);
    assert_eq!(client.rows("SELECT * FROM kept"), ["1|1"]);
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
fn a_database_opens_beside_containers_of_tasks() {
    let options = EngineOptions { workers: 1, nodes: 1, ..EngineOptions::default() };
    let engine = Engine::start(Arc::new(RealEnv::new()), options).unwrap();
    let id = engine.next_container_id();
    assert_ne!(id, CATALOG_CONTAINER);
    engine.create_container(task_container(id)).unwrap();
    drop(Database::new(engine.clone(), DatabaseOptions::default()).unwrap());
    assert!(engine.container(id).is_some());
    engine.drop_container(CATALOG_CONTAINER).unwrap();
    engine.create_container(task_container(CATALOG_CONTAINER)).unwrap();
    let error = Database::new(engine.clone(), DatabaseOptions::default()).expect_err("the place is taken");
    assert_eq!(error.sqlstate.as_str(), "XX001", "{error}");
    engine.shutdown();
}
