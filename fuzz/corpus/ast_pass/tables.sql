create table t (id int primary key, name varchar(40) not null default 'x', price numeric(8,2), sold date, raw bytea) with (layout = mixed, partitions = 7, segment_rows = 1000);
create table if not exists public.u (a bigint, b smallint null, primary key (a, b), unique (b));
create index by_name on t (name); create unique index on t using btree (id desc);
drop table if exists t, u; drop index by_name; truncate t, u;
