CREATE TABLE customers (id text PRIMARY KEY, name text, city text);
