"""What the CRD says about each field of the status, for `kubectl explain dpl.status` and the reference page."""

from __future__ import annotations

from ackwright.api.fields import About, map_by

STATUS_FIELDS: dict[str, About] = {
    # kstatus compares generations: with -1 a new pipeline does not count as current before its first reconciliation.
    "status": About("The observed state. Only the operator writes it.", schema={"default": {"observedGeneration": -1}}),
    "status.observedGeneration": About(
        "The generation of the spec that the status describes; -1 before the first reconciliation."
    ),
    "status.guarantee": About("The guarantee that is in force: that of the last valid spec."),
    "status.group": About("The consumer group that holds the committed offsets."),
    "status.topicsReady": About("How many of the managed topics exist: 2/2."),
    "status.topics": About("The topics as last observed.", schema=map_by("name")),
    "status.topics[].name": About("The name of the topic."),
    "status.topics[].id": About("Kafka's id of the topic. A topic that was deleted and created again has another one."),
    "status.topics[].partitions": About("The number of partitions."),
    "status.topics[].replicationFactor": About("The number of replicas, of the partition with the fewest."),
    "status.topics[].minInsyncReplicas": About(
        "min.insync.replicas in force: with fewer replicas in sync the topic accepts no records."
    ),
    "status.topics[].inSyncReplicas": About("The number of replicas in sync, of the partition with the fewest."),
    "status.topics[].moving": About("The number of partitions whose replicas are being moved."),
    "status.topics[].throttledBrokers": About(
        "The brokers with a throttle for that move; absent when there is no throttle to remove."
    ),
    "status.conditions": About(
        "Ready, GuaranteeMet and others; docs/conditions.md lists every reason with its cause and remedy.",
        schema=map_by("type"),
    ),
    "status.conditions[].type": About("The aspect that the condition describes."),
    "status.conditions[].status": About("Whether it is true."),
    "status.conditions[].reason": About("The reason, in one word."),
    "status.conditions[].message": About("The reason in a sentence, with the remedy."),
    "status.conditions[].lastTransitionTime": About("When the status last changed."),
    "status.conditions[].observedGeneration": About("The generation of the spec that the condition describes."),
    "status.lostTopics": About(
        "Topics that were deleted or recreated, or that the pipeline needs and that do not exist. "
        "`ackwright accept-topic` reads them.",
        schema=map_by("name"),
    ),
    "status.lostTopics[].name": About("The name of the topic."),
    "status.lostTopics[].id": About(
        "Kafka's id of the topic whose records are lost. Absent: the operator does not know of an earlier topic."
    ),
    "status.lostTopics[].currentId": About("Kafka's id of the topic that has the name now. Absent: there is none."),
    "status.movedPositions": About(
        "Committed offsets that another program has set, and that halt the driver. "
        "`ackwright accept-positions` reads them."
    ),
    "status.movedPositions.fingerprint": About(
        "Identifies exactly these partitions and offsets; offsets that are set later have another one."
    ),
    "status.accepted": About("The last valid spec, which keeps running while an edit is invalid."),
    "status.accepted.generation": About("The generation of that spec."),
    "status.accepted.hash": About("The hash of everything that the job is started with."),
    "status.accepted.spec": About("The spec itself."),
    "status.intent": About(
        "What the operator was about to do. After a crash the next operator checks whether it was done."
    ),
    "status.intent.actions": About("The intended writes."),
    "status.intent.since": About("When they were decided."),
    "status.driver": About("The driver as last observed."),
    "status.driver.pod": About("The name of the pod."),
    "status.driver.uid": About("The uid of the pod."),
    "status.driver.node": About("The node of the pod."),
    "status.driver.number": About("The number of the driver. A driver exits when there is one with a higher number."),
    "status.driver.restarts": About("How often the container was restarted."),
    "status.driver.lastError": About("Why the driver last ended."),
    "status.delivery": About("The driver's last progress report."),
    "status.delivery.batch": About("The number of the last micro-batch since the query started."),
    "status.delivery.lag": About("The number of offsets between the committed offsets and the ends of the source."),
    "status.delivery.recordsPerSecond": About("Records written per second, over the last ten seconds."),
    "status.delivery.abandonedRecords": About(
        "Offsets abandoned with their micro-batch since the driver started, some of which may have been processed "
        "(at-most-once)."
    ),
    "status.delivery.malformedRecords": About("Malformed records that were skipped since the driver started."),
    "status.delivery.expiredRecords": About(
        "Offsets that expired before they were read, since the driver started (at-most-once)."
    ),
    "status.delivery.observedAt": About("When the driver reported."),
}
