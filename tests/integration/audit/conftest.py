"""The pipeline that the tests of the audit play."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from integration.support.audited import Pipeline


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, spark: SparkSession) -> Pipeline:
    """Two topics and a group without records."""
    return Pipeline(kafka.bootstrap_servers, spark)
