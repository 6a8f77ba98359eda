insert into t values (1, 'Grüße, 世界', 12.50, '2024-02-29', null), (2, 'It''s', default, date '2024-01-01', '\xff');
insert into t (id, name) select a, b::text from u where a between 1 and 5;
update t set price = price * 1.1, name = upper(name) where id in (1, 2) and not (sold is null);
delete from t where id = $1 or exists (select 1 from u where u.a = t.id)
