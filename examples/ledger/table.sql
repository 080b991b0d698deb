-- The primary key refuses a payment that its sender has sent twice, which no pipeline can recognise.
CREATE TABLE ledger (payment text, account text, amount numeric(12, 2) NOT NULL, PRIMARY KEY (payment, account));
