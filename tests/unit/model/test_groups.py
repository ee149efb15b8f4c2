"""Groups as brokers store and report them."""

from __future__ import annotations

from orbitmq import java_json
from orbitmq.model.groups import ExponentialRetry, GroupConfig, ListedRetry, RetryPolicy


def test_a_group_is_written_as_java_writes_it() -> None:
    assert java_json.encode(GroupConfig(name="g")) == (
        b'{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        b'"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
        b'"groupName":"g","groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
        b'"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
        b'"whichBrokerWhenConsumeSlowly":1}'
    )


def test_a_group_of_4_9_gets_the_defaults_of_what_it_lacks() -> None:
    text = (
        b'{"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":false,'
        b'"consumeFromMinEnable":true,"groupName":"g","notifyConsumerIdsChangedEnable":true,'
        b'"retryMaxTimes":3,"retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}'
    )

    group = java_json.decode(text, GroupConfig)

    assert group == GroupConfig(name="g", allows_consuming=False, retries_max=3)


def test_everything_of_a_group_survives() -> None:
    text = (
        b'{"attributes":{"a":"b"},"brokerId":2,"consumeBroadcastEnable":false,'
        b'"consumeEnable":false,"consumeFromMinEnable":false,"consumeMessageOrderly":true,'
        b'"consumeTimeoutMinute":5,"groupName":"g","groupRetryPolicy":{"exponentialRetryPolicy":'
        b'{"initial":1,"max":9,"multiplier":3},"type":"EXPONENTIAL"},"groupSysFlag":1,'
        b'"notifyConsumerIdsChangedEnable":false,"retryMaxTimes":0,"retryQueueNums":4,'
        b'"subscriptionDataSet":[{"expression":"a","expressionType":"TAG","topic":"T",'
        b'"version":7}],"whichBrokerWhenConsumeSlowly":3}'
    )

    group = java_json.decode(text, GroupConfig)

    assert group.retry_policy.exponential == ExponentialRetry(
        initial_ms=1, largest_ms=9, multiplier=3
    )
    assert java_json.encode(group) == text


def test_listed_pauses_are_rocketmqs_delay_levels_unless_given() -> None:
    policy = java_json.decode(b'{"customizedRetryPolicy":{}}', RetryPolicy)

    assert policy.listed == ListedRetry()
    assert len(ListedRetry().pauses_ms) == 18
    assert ListedRetry().pauses_ms[0] == 1000
    assert ListedRetry().pauses_ms[-1] == 2 * 60 * 60 * 1000
