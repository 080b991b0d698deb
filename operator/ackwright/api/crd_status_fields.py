"""What the CRD says of each field of the status, for `kubectl explain dpl.status` and the reference."""

from __future__ import annotations

from ackwright.api.fields import About

STATUS_FIELDS: dict[str, About] = {
    # Until the operator has looked, a new pipeline is not taken for one that is as declared: kstatus compares generations.
    "status": About(
        "What was seen last, written by the operator alone.", schema={"default": {"observedGeneration": -1}}
    ),
    "status.observedGeneration": About(
        "The generation of the spec that all this is said of; -1 before the first look."
    ),
    "status.guarantee": About("The guarantee that is being kept: of the last valid spec."),
    "status.group": About("The consumer group whose offsets are the positions."),
    "status.topicsReady": About("How many of the planned topics are there: 2/2."),
    "status.topics": About(
        "The topics as last seen.", schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    ),
    "status.topics[].name": About("The topic's name."),
    "status.topics[].id": About("Kafka's id of it: a topic of the same name with another id is another topic."),
    "status.topics[].partitions": About("How many partitions it has."),
    "status.topics[].replicationFactor": About("The replicas of the partition with the fewest."),
    "status.topics[].minInsyncReplicas": About("min.insync.replicas in force: with fewer in sync nothing is written."),
    "status.topics[].inSyncReplicas": About("The replicas in sync of the partition with the fewest."),
    "status.topics[].moving": About("The partitions whose replicas are being moved."),
    "status.topics[].throttledBrokers": About(
        "The brokers that were given a rate for that; absent when there is none to take back."
    ),
    "status.conditions": About(
        "Ready, GuaranteeMet and others; the documentation has every reason with its cause and remedy.",
        schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
    "status.conditions[].type": About("What it is about."),
    "status.conditions[].status": About("Whether it holds."),
    "status.conditions[].reason": About("Why, in one word."),
    "status.conditions[].message": About("Why, in a sentence, with what to do."),
    "status.conditions[].lastTransitionTime": About("When the status last changed."),
    "status.conditions[].observedGeneration": About("The generation of the spec that it is said of."),
    "status.accepted": About("The last valid spec, which keeps running while an edit is invalid."),
    "status.accepted.generation": About("Its generation."),
    "status.accepted.hash": About("The hash of all that it is run with."),
    "status.accepted.spec": About("The spec itself."),
    "status.intent": About(
        "What the operator was about to do when it last wrote; its successor looks whether it was done."
    ),
    "status.intent.actions": About("The writes that were to come."),
    "status.intent.since": About("When they were decided on."),
    "status.driver": About("The driver as last seen."),
    "status.driver.pod": About("Its pod's name."),
    "status.driver.uid": About("Its pod's uid."),
    "status.driver.node": About("The node that it runs on."),
    "status.driver.number": About("How many drivers the pipeline has had: a higher number makes every older one exit."),
    "status.driver.restarts": About("How often its container was started again."),
    "status.driver.lastError": About("Why it last ended."),
    "status.delivery": About("What the driver last told of itself."),
    "status.delivery.batch": About("The number of the last batch, counted from when its query began."),
    "status.delivery.lag": About("Offsets between the positions and the ends of the source."),
    "status.delivery.recordsPerSecond": About("Records written a second, over the last ten seconds."),
    "status.delivery.abandonedRecords": About(
        "Offsets given up with their batch, some of them perhaps processed, since the driver began (at-most-once)."
    ),
    "status.delivery.malformedRecords": About("Malformed records left out, since the driver began."),
    "status.delivery.expiredRecords": About(
        "Offsets that were gone before they were read, since the driver began (at-most-once)."
    ),
    "status.delivery.observedAt": About("When it told."),
}
