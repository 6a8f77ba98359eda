//! A recorded psycopg session: the extended protocol as a driver uses it.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;

use std::process::Command;

use client::{Server, installed, texts};

fn run(script: &str) {
    if !installed("python3", &["-c", "import psycopg"], "psycopg (a Python package)") {
        return;
    }
    let server = Server::start();
    let preamble = format!(
        "import datetime, decimal, threading, time\nimport psycopg\n\
         from psycopg import sql\n\
         def connect(**options):\n    \
         return psycopg.connect('host=127.0.0.1 port={} user=eris dbname=eris', **options)\n",
        server.port()
    );
    let output = Command::new("python3").arg("-c").arg(preamble + script).output().unwrap();
    let (printed, errors) = texts(&output);
    assert!(output.status.success(), "{printed}\n{errors}");
    assert!(printed.ends_with("done\n"), "{printed}");
    server.wait_for_connections(0);
}

#[test]
fn types_travel_in_text_and_binary() {
    run("
row = (1, -2**40, True, 'Grüße 世界', decimal.Decimal('12345.678'), datetime.date(2024, 2, 29),
       datetime.datetime(2024, 2, 29, 12, 30, 15, 123456), 1.5, b'\\x00\\xff', None)
with connect() as connection:
    connection.execute('''CREATE TABLE t (id int PRIMARY KEY, big bigint, flag boolean, name text,
        amount numeric(12,3), day date, moment timestamp, ratio double precision, raw bytea, nothing text)''')
    for binary in (False, True):
        cursor = connection.cursor(binary=binary)
        cursor.execute('DELETE FROM t')
        marks = ', '.join(['%b' if binary else '%s'] * len(row))
        cursor.execute(f'INSERT INTO t VALUES ({marks})', row)
        assert cursor.rowcount == 1
        cursor.execute('SELECT * FROM t WHERE id = %s', (1,))
        assert cursor.fetchone() == row, (binary, cursor.fetchone())
        assert [column.name for column in cursor.description][:2] == ['id', 'big']
print('done')
");
}

#[test]
fn statements_are_prepared_once() {
    run("
with connect(prepare_threshold=0, autocommit=True) as connection:
    connection.execute('CREATE TABLE t (id int PRIMARY KEY, n int)')
    for number in range(200):
        connection.execute('INSERT INTO t VALUES (%s, %s)', (number, number * number))
    total = 0
    for number in range(200):
        total += connection.execute('SELECT n FROM t WHERE id = %s', (number,)).fetchone()[0]
    assert total == sum(number * number for number in range(200))
    assert connection.execute('SELECT count(*) FROM t WHERE n > %s', (100,)).fetchone() == (189,)
    with connection.cursor() as cursor:
        cursor.executemany('UPDATE t SET n = %s WHERE id = %s', [(number, number) for number in range(100)])
        assert cursor.rowcount == 100
print('done')
");
}

#[test]
fn transactions_end_as_the_driver_says() {
    run("
with connect() as connection:
    connection.execute('CREATE TABLE t (id int PRIMARY KEY)')
with connect() as one, connect() as two:
    one.execute('INSERT INTO t VALUES (1)')
    assert two.execute('SELECT count(*) FROM t').fetchone() == (0,)
    one.commit()
    assert two.execute('SELECT count(*) FROM t').fetchone() == (0,), 'the snapshot stays'
    two.rollback()
    assert two.execute('SELECT count(*) FROM t').fetchone() == (1,)
    one.execute('DELETE FROM t')
    one.rollback()
    try:
        one.execute('INSERT INTO t VALUES (1)')
        assert False
    except psycopg.errors.UniqueViolation as error:
        assert error.sqlstate == '23505'
    try:
        one.execute('SELECT 1')
        assert False
    except psycopg.errors.InFailedSqlTransaction:
        pass
    one.rollback()
    assert one.execute('SELECT count(*) FROM t').fetchone() == (1,)
    one.commit()
    with one.transaction():
        one.execute('INSERT INTO t VALUES (2)')
print('done')
");
}

#[test]
fn conflicts_are_serialization_failures() {
    run("
with connect(autocommit=True) as connection:
    connection.execute('CREATE TABLE t (id int PRIMARY KEY, n int)')
    connection.execute('INSERT INTO t VALUES (1, 0)')
with connect() as one, connect() as two:
    one.execute('UPDATE t SET n = 1 WHERE id = 1')
    assert two.execute('SELECT n FROM t').fetchone() == (0,)
    one.commit()
    try:
        two.execute('UPDATE t SET n = 2 WHERE id = 1')
        assert False
    except psycopg.errors.SerializationFailure as error:
        assert error.sqlstate == '40001'
    two.rollback()
    two.execute('UPDATE t SET n = n + 2 WHERE id = 1')
    two.commit()
    assert two.execute('SELECT n FROM t').fetchone() == (3,)
print('done')
");
}

#[test]
fn copy_streams_rows_in() {
    run("
with connect(autocommit=True) as connection:
    connection.execute('CREATE TABLE t (id int PRIMARY KEY, name text)')
    with connection.cursor() as cursor:
        with cursor.copy('COPY t FROM STDIN WITH (FORMAT csv)') as copy:
            for number in range(20000):
                copy.write(f'{number},\"name {number}\"\\n')
        assert cursor.rowcount == 20000, cursor.rowcount
        assert cursor.execute('SELECT count(*), max(id) FROM t').fetchone() == (20000, 19999)
        for bad in ('20000,a,b\\n', 'x,y\\n', '1,duplicate\\n', '\"open'):
            try:
                with cursor.copy('COPY t FROM STDIN WITH (FORMAT csv)') as copy:
                    copy.write('30000,fine\\n')
                    copy.write(bad)
                assert False, bad
            except psycopg.Error as error:
                assert error.sqlstate, bad
        try:
            with cursor.copy('COPY t FROM STDIN WITH (FORMAT csv)') as copy:
                copy.write('30000,fine\\n')
                raise KeyError('the client gives up')
        except KeyError:
            pass
        assert cursor.execute('SELECT count(*) FROM t').fetchone() == (20000,), 'each COPY is atomic'
print('done')
");
}

#[test]
fn running_statements_are_cancelled() {
    run("
with connect(autocommit=True) as connection:
    threading.Timer(0.3, connection.cancel).start()
    start = time.time()
    try:
        connection.execute('SELECT pg_sleep(60)')
        assert False
    except psycopg.errors.QueryCanceled as error:
        assert error.sqlstate == '57014'
    assert time.time() - start < 20
    assert connection.execute('SELECT 1').fetchone() == (1,)
    connection.cancel()
    time.sleep(0.1)
    assert connection.execute('SELECT 2').fetchone() == (2,)
print('done')
");
}

#[test]
fn pipelines_answer_in_order() {
    run("
with connect(autocommit=True) as connection:
    connection.execute('CREATE TABLE t (id int PRIMARY KEY)')
    with connection.pipeline() as pipeline:
        cursors = [connection.execute('SELECT %s::int + 1', (number,)) for number in range(300)]
    assert [cursor.fetchone()[0] for cursor in cursors] == list(range(1, 301))
    try:
        with connection.pipeline() as pipeline:
            connection.execute('INSERT INTO t VALUES (1)')
            connection.execute('INSERT INTO t VALUES (1)')
            connection.execute('INSERT INTO t VALUES (2)')
        assert False
    except psycopg.errors.UniqueViolation:
        pass
    assert connection.execute('SELECT count(*) FROM t WHERE id = 2').fetchone() == (0,)
print('done')
");
}

#[test]
fn large_results_stream() {
    run("
with connect(autocommit=True) as connection:
    connection.execute('CREATE TABLE t (id int PRIMARY KEY, name text)')
    with connection.cursor() as cursor:
        with cursor.copy('COPY t FROM STDIN WITH (FORMAT csv)') as copy:
            for number in range(100000):
                copy.write(f'{number},a name that takes some bytes {number}\\n')
        seen = 0
        for row in cursor.stream('SELECT id, name FROM t'):
            seen += 1
        assert seen == 100000
        for row in cursor.stream('SELECT id, name FROM t'):
            break
        assert connection.execute('SELECT 1').fetchone() == (1,)
print('done')
");
}

#[test]
fn settings_and_metadata_are_there() {
    run("
with connect(application_name='test of the driver', autocommit=True) as connection:
    assert connection.info.server_version >= 150000, connection.info.server_version
    assert connection.info.encoding == 'utf-8'
    assert connection.info.parameter_status('integer_datetimes') == 'on'
    assert connection.info.parameter_status('application_name') == 'test of the driver'
    assert connection.execute('SHOW application_name').fetchone() == ('test of the driver',)
    connection.execute(\"SET application_name TO 'another'\")
    assert connection.info.parameter_status('application_name') == 'another'
    assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
print('done')
");
}

#[test]
fn many_executions_are_one_transaction() {
    run("
with connect(autocommit=True) as connection:
    connection.execute('CREATE TABLE t (id int PRIMARY KEY, n int)')
    def count():
        return connection.execute('SELECT count(*) FROM t').fetchone()[0]
    try:
        connection.cursor().executemany('INSERT INTO t VALUES (%s, 1 / %s)', [(1, 1), (2, 1), (3, 0), (4, 1)])
        assert False
    except psycopg.errors.DivisionByZero:
        assert count() == 0
    connection.cursor().executemany('INSERT INTO t VALUES (%s, %s)', [(n, n) for n in range(1000)])
    assert count() == 1000
    with connection.pipeline() as pipeline:
        connection.execute('DELETE FROM t WHERE id < 500')
        cursor = connection.execute('SELECT count(*) FROM t')
        pipeline.sync()
        assert cursor.fetchone() == (500,)
        connection.execute('DELETE FROM t')
        try:
            connection.execute('SELECT 1 / 0').fetchone()
            assert False
        except psycopg.errors.DivisionByZero:
            pass
        try:
            connection.execute('DELETE FROM t')
            pipeline.sync()
        except psycopg.errors.PipelineAborted:
            pipeline.sync()
    assert count() == 500
    with connection.pipeline(), connection.transaction():
        connection.execute('DELETE FROM t')
    assert count() == 0
print('done')
");
}

#[test]
fn timeouts_end_what_they_are_set_for() {
    run("
def fails(state, connection, statement):
    try:
        connection.execute(statement)
    except psycopg.Error as error:
        assert error.sqlstate == state, (statement, error.sqlstate, str(error))
        return str(error)
    assert False, statement

with connect(autocommit=True, options='-c statement_timeout=100ms') as one, connect(autocommit=True) as two:
    assert one.execute('SHOW statement_timeout').fetchone() == ('100ms',)
    assert 'due to statement timeout' in fails('57014', one, 'SELECT pg_sleep(60)')
    one.execute('CREATE TABLE t (id int PRIMARY KEY, n int)')
    one.execute('INSERT INTO t VALUES (1, 1)')
    one.execute('SET statement_timeout = 0')
    one.execute('SELECT pg_sleep(0.2)')
    with one.transaction():
        one.execute(\"SET LOCAL statement_timeout = '1min'\")
        assert one.execute('SHOW statement_timeout').fetchone() == ('1min',)
    assert one.execute('SHOW statement_timeout').fetchone() == ('0',)
    fails('22023', one, 'SET statement_timeout = -1')
    fails('22023', one, \"SET lock_timeout = '2 parsecs'\")
    with one.transaction():
        one.execute('UPDATE t SET n = 2 WHERE id = 1')
        two.execute('SET lock_timeout = 50')
        assert 'due to lock timeout' in fails('55P03', two, 'UPDATE t SET n = 3 WHERE id = 1')

for name, state, words, statements in [
    ('idle_in_transaction_session_timeout', '25P03', 'idle-in-transaction', ['BEGIN', 'UPDATE t SET n = 7']),
    ('idle_session_timeout', '57P05', 'idle-session', ['SELECT 1']),
    ('transaction_timeout', '25P04', 'transaction timeout', ['BEGIN', 'UPDATE t SET n = 7']),
]:
    connection = connect(autocommit=True)
    connection.execute(f'SET {name} = 100')
    for statement in statements:
        connection.execute(statement)
    deadline = time.time() + 30
    with connect(autocommit=True) as other:
        pid = connection.info.backend_pid
        there = 'SELECT count(*) FROM pg_stat_activity WHERE pid = %s'
        while other.execute(there, (pid,)).fetchone() != (0,):
            assert time.time() < deadline, name
            time.sleep(0.02)
        # What it had locked is free, and as it was.
        other.execute('UPDATE t SET n = n + 0 WHERE id = 1')
        assert other.execute('SELECT n FROM t').fetchone() == (2,), name
    assert words in fails(state, connection, 'SELECT 1'), name
print('done')
");
}

#[test]
fn sessions_cancel_and_terminate_each_other() {
    run("
def wait(condition):
    deadline = time.time() + 30
    while not condition():
        assert time.time() < deadline
        time.sleep(0.02)

def run(connection, statement, told):
    try:
        connection.execute(statement)
        told.append(None)
    except psycopg.Error as error:
        told.append(error.sqlstate)

with connect(autocommit=True) as one, connect(autocommit=True, application_name='busy') as two:
    pid = two.info.backend_pid
    assert two.execute('SELECT pg_backend_pid()').fetchone() == (pid,)
    state = 'SELECT state, query FROM pg_stat_activity WHERE pid = %s'
    for function, code in [('pg_cancel_backend', '57014'), ('pg_terminate_backend', '57P01')]:
        told = []
        thread = threading.Thread(target=run, args=(two, 'SELECT pg_sleep(60)', told))
        thread.start()
        wait(lambda: one.execute(state, (pid,)).fetchone() == ('active', 'SELECT pg_sleep(60)'))
        end = f\"SELECT {function}(pid) FROM pg_stat_activity WHERE application_name = 'busy'\"
        assert one.execute(end).fetchall() == [(True,)]
        thread.join()
        assert told == [code], told
    wait(lambda: one.execute(state, (pid,)).fetchone() is None)
    notices = []
    one.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    assert one.execute('SELECT pg_cancel_backend(123456)').fetchone() == (False,)
    assert one.execute('SELECT pg_terminate_backend(123456)').fetchone() == (False,)
    assert notices == ['PID 123456 is not a PostgreSQL server process'] * 2, notices

    # An idle session in a transaction: rolled back, its locks are free.
    one.execute('CREATE TABLE t (id int PRIMARY KEY, n int)')
    one.execute('INSERT INTO t VALUES (1, 1)')
    three = connect(autocommit=True)
    three.execute('BEGIN')
    three.execute('UPDATE t SET n = 9')
    pid = three.info.backend_pid
    assert one.execute(state, (pid,)).fetchone() == ('idle in transaction', 'UPDATE t SET n = 9')
    assert one.execute('SELECT pg_terminate_backend(%s)', (pid,)).fetchone() == (True,)
    one.execute('UPDATE t SET n = n + 1')
    assert one.execute('SELECT n FROM t').fetchone() == (2,)
print('done')
");
}
