with r as (select a, sum(b) as s from u group by a having count(*) > 1)
select t.id, coalesce(r.s, 0), case when t.price > 10 then 'dear' else 'cheap' end as class, extract(year from sold),
  substring(name from 1 for 3), cast(price as double precision), row_number() over (partition by name order by id)
from t left join r on r.a = t.id, (values (1, 'x'), (2, 'y')) v (n, x)
where name like 'a%' escape '\' and sold >= date '1994-01-01' + interval '1' year and price <> all_prices
order by 1 desc nulls last, price limit 10 offset 5;
select count(distinct id), avg(price) filter (where id > 0) from t union all select 1, 2 except select 3, 4
