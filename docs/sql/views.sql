-- Gives the tables of a run their names. Run it in the run's Parquet folder, before any other recipe.
CREATE OR REPLACE TEMP VIEW events AS SELECT * FROM 'events/*.parquet';
CREATE OR REPLACE TEMP VIEW groups AS SELECT * FROM 'groups/*.parquet';
CREATE OR REPLACE TEMP VIEW samples AS SELECT * FROM 'samples/*.parquet';
CREATE OR REPLACE TEMP VIEW publications AS SELECT * FROM 'publications/*.parquet';
CREATE OR REPLACE TEMP VIEW steps AS SELECT * FROM 'steps/*.parquet';
