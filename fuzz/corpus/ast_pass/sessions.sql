begin isolation level repeatable read, read only; commit; start transaction; rollback; set transaction read write;
set local statement_timeout = '5s'; set time zone 'UTC'; set layout to column; reset all; show transaction isolation level;
prepare p (int, text) as select $1 + 1, $2; execute p (1, 'x'); deallocate all; discard all;
explain (analyze, verbose off) select * from t where id = 1; explain analyze update t set id = 2;
copy t (id, name) from stdin with (format csv, header true, delimiter '|', null '-', quote '''');
copy t from '/data/t.csv' csv header; copy t from stdin
