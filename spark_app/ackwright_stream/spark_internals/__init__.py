"""The only package that uses interfaces that Spark does not publish: py4j, the JVM's objects, PySpark's worker.

They can change with any version of Spark, so the package is written for one (version.py) and a job refuses to start on
another. Everything else in the job calls the typed functions here and holds the JVM's objects only as opaque values.
"""
