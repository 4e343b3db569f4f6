-- Database roles and their rights. PostgreSQL's image runs this script on a new volume. For an existing volume, run:
--   docker compose --file docker/compose.yaml exec postgres psql --username runboard --file /docker-entrypoint-initdb.d/roles.sql
-- You can run it repeatedly. The superuser `runboard` is only for this script and for repairs: no process of the site has
-- its password.
--   runboard_owner      owns the tables and migrates them; only `setup` uses it
--   runboard_site       reads and writes rows, but cannot change tables, triggers, or rights
--   runboard_retriever  has only the rights that retrieval needs, because it runs untrusted models
--                       (`manage.py database_rights` grants its rights)
\set ON_ERROR_STOP on
\getenv owner_password DATABASE_OWNER_PASSWORD
\getenv site_password DATABASE_PASSWORD
\getenv retriever_password DATABASE_RETRIEVER_PASSWORD

DO $$
DECLARE role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['runboard_owner', 'runboard_site', 'runboard_retriever'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role_name) THEN
            EXECUTE format('CREATE ROLE %I', role_name);
        END IF;
        EXECUTE format('ALTER ROLE %I LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS', role_name);
    END LOOP;
END $$;
ALTER ROLE runboard_owner PASSWORD :'owner_password';
ALTER ROLE runboard_site PASSWORD :'site_password';
ALTER ROLE runboard_retriever PASSWORD :'retriever_password';

-- Only the owner of the database may create tables in `public`. Tables and functions that earlier versions created as
-- another role get this owner, and sequences change with their tables.
DO $$
DECLARE thing record;
BEGIN
    EXECUTE format('ALTER DATABASE %I OWNER TO runboard_owner', current_database());
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO runboard_site, runboard_retriever', current_database());
    FOR thing IN
        SELECT oid::regclass AS name FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v')
            AND pg_get_userbyid(relowner) <> 'runboard_owner'
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO runboard_owner', thing.name);
    END LOOP;
    FOR thing IN
        SELECT oid::regprocedure AS name FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND pg_get_userbyid(proowner) <> 'runboard_owner'
    LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO runboard_owner', thing.name);
    END LOOP;
END $$;
REVOKE CREATE ON SCHEMA public FROM PUBLIC;

-- The site can use tables of later migrations immediately, but without TRUNCATE, TRIGGER, and REFERENCES.
ALTER DEFAULT PRIVILEGES FOR ROLE runboard_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO runboard_site;
ALTER DEFAULT PRIVILEGES FOR ROLE runboard_owner IN SCHEMA public
    GRANT USAGE, SELECT ON SEQUENCES TO runboard_site;
