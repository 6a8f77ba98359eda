select distinct on (a) * from t; select * from lateral (select 1) x; with recursive r as (select 1) select * from r;
select * from t for update; select * from t tablesample system (10); merge into t using u on t.a = u.a when matched then delete;
create table t as select 1; create temporary table t (a int); create view v as select 1; alter table t add column b int;
create table t (a int references u (b), check (a > 0), c int generated always as identity);
select array[1, 2], a at time zone 'utc', a collate "C", a similar to 'x', a = any (select 1), try_cast(a as int);
copy (select 1) to stdout; copy t from program 'x'; begin isolation level serializable; savepoint s; lock table t;
insert into t values (1) on conflict do nothing returning *; update t set a = 1 from u; delete from t using u
