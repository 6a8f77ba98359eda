//! Tables without end, and without rows: their definitions are refused before the process passes its limit.

use eris_workloads::connection::SqlConnection;

use super::Process;
use super::memory::{LIMIT, peak_bytes};
use crate::support::{Place, eris, serve};

#[test]
fn tables_without_end_are_refused_and_the_database_opens_with_its_limit() {
    let place = Place::new("operation-definitions");
    let start = || {
        let mut command = serve(eris(), &place.path("db"));
        command.args(["--memory-limit", &LIMIT.to_string()]);
        Process::start(command).unwrap_or_else(|(_, text)| panic!("{text}"))
    };
    let server = start();
    let columns: Vec<String> = (0..1_600).map(|number| format!("c{number} int")).collect();
    let columns = columns.join(", ");
    let mut session = server.try_connect().unwrap();
    let mut made = 0_i64;
    let refused = loop {
        match session.execute(&format!("CREATE TABLE w{made} ({columns})"), &[]) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 2_000, "the definitions of 2,000 tables do not fit into the limit");
    };
    assert_eq!(refused.sqlstate, "53200", "{refused}");
    assert!(made > 50, "{made} tables");
    let peak = peak_bytes(&server);
    assert!(peak <= LIMIT + LIMIT / 8, "{peak} bytes were resident with {made} tables");
    drop(session);
    server.signal(libc::SIGKILL);
    server.end();

    let server = start();
    let count = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'";
    assert_eq!(server.run(count).unwrap(), Some(made));
    let half: Vec<String> = (0..made / 2).map(|number| format!("w{number}")).collect();
    server.run(&format!("DROP TABLE {}", half.join(", "))).unwrap();
    server.run(&format!("CREATE TABLE again ({columns})")).unwrap();
    server.stop();
}
