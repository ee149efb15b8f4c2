"""RocketMQ's own options, which a file written for RocketMQ may contain.

Names and defaults are those of RocketMQ 5.3.3; names that only 4.9, 5.1 or older versions have are
listed too. An option of OrbitMQ takes precedence over a row of this table. Other rows are accepted
with a warning that says why they have no effect, so that a file written for RocketMQ, or for
another role, works. Rows of `REFUSED` would promise something that OrbitMQ does not do, such as
access control or replication: any value but the harmless one fails the start.

A row without a reason belongs to a role that has, or will have, the option as its own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


class ServerRole(enum.StrEnum):
    """What a server process is; one file may configure several."""

    NAME_SERVER = "name server"
    BROKER = "broker"
    CONTROLLER = "controller"
    FILTER_SERVER = "filter server"


class Reader(enum.StrEnum):
    """The class that reads an option in RocketMQ."""

    NAME_SERVER = "NamesrvConfig"
    SERVER = "NettyServerConfig"
    CLIENT = "NettyClientConfig"
    BROKER = "BrokerConfig"
    STORE = "MessageStoreConfig"
    ACCESS = "AuthConfig"
    CONTROLLER = "ControllerConfig"
    FILTER_SERVER = "FiltersrvConfig"

    @property
    def roles(self) -> frozenset[ServerRole]:
        """The roles that have such a class."""
        return _ROLES[self]


_ROLES: Final[dict[Reader, frozenset[ServerRole]]] = {
    Reader.NAME_SERVER: frozenset({ServerRole.NAME_SERVER}),
    Reader.SERVER: frozenset(ServerRole),
    Reader.CLIENT: frozenset(ServerRole),
    Reader.BROKER: frozenset({ServerRole.BROKER}),
    Reader.STORE: frozenset({ServerRole.BROKER}),
    Reader.ACCESS: frozenset({ServerRole.BROKER}),
    Reader.CONTROLLER: frozenset({ServerRole.CONTROLLER}),
    Reader.FILTER_SERVER: frozenset({ServerRole.FILTER_SERVER}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RocketMQOption:
    """One option of RocketMQ, and how OrbitMQ treats it."""

    name: str
    default: str  # RocketMQ's, in words where it depends on the machine
    readers: tuple[Reader, ...]
    reason: str = ""  # why it has no effect, or why it is refused
    harmless: str | None = None  # of a refused option: the only value that is accepted

    @property
    def roles(self) -> frozenset[ServerRole]:
        """The roles that read it in RocketMQ."""
        return frozenset().union(*(reader.roles for reader in self.readers))

    def why_without_effect(self, role: ServerRole | None) -> str:
        """Explain why it has no effect in this role; the text follows the option's name."""
        if role is not None and role not in self.roles:
            readers = " and ".join(sorted(self.roles))
            return f"is a {readers} option and has no effect on the {role}"
        return f"has no effect: {self.reason or 'nothing here depends on it'}"


EVENT_LOOP: Final = "work runs on an event loop, not in thread pools"
ALWAYS_GRACEFUL: Final = "a stopping server always waits for requests in flight"
LOW_MARK: Final = "it is derived from the high-water mark"
NOT_BUILT: Final = "this feature is not built"
NO_NETTY: Final = "Netty is not used"
UVLOOP: Final = "uvloop is used wherever it is installed"
NO_ROCKSDB: Final = "there is no RocksDB store"
NO_DLEDGER: Final = "there is no DLedger log"
NO_CONTROLLER: Final = "there is no controller"
NO_ACCESS_CONTROL: Final = "access control is not built"
NO_POOL: Final = "messages are written directly into the mapped file"
ALWAYS_WARM: Final = "the next file, and the pages written next, are always prepared"
ONE_LOCK: Final = "an append holds one lock for microseconds"
FILES_REST: Final = "unused files release their memory by themselves"
READERS_KEEP: Final = "a deleted file is removed once its last reader closes it, never by force"
QUEUES_FOLLOW: Final = "queues and index follow the log with positions of their own"
FLUSHED_WHEN_ASKED: Final = "a flush starts when something waits for it, else at its interval"
NEVER_READ: Final = "RocketMQ does not read it either: it is always in storePathRootDir"


def _rows(table: str, *readers: Reader, reason: str = "") -> Iterator[RocketMQOption]:
    """Parse rows written as name=default, with RocketMQ's default."""
    for row in table.split():
        name, _, default = row.partition("=")
        yield RocketMQOption(name=name, default=default, readers=readers, reason=reason)


def _refused(name: str, harmless: str, reader: Reader, reason: str) -> RocketMQOption:
    """Make the row of a refused option; its harmless value is RocketMQ's default."""
    return RocketMQOption(
        name=name, default=harmless, readers=(reader,), reason=reason, harmless=harmless
    )


REFUSED: Final = (
    _refused("aclEnable", "false", Reader.BROKER, NO_ACCESS_CONTROL),
    _refused("authenticationEnabled", "false", Reader.ACCESS, NO_ACCESS_CONTROL),
    _refused("authorizationEnabled", "false", Reader.ACCESS, NO_ACCESS_CONTROL),
    _refused("enableControllerInNamesrv", "false", Reader.NAME_SERVER, "no controller is built in"),
    _refused("enableControllerMode", "false", Reader.BROKER, "no master would ever be elected"),
    _refused("enableDLegerCommitLog", "false", Reader.STORE, "the log would not be replicated"),
    _refused("storeType", "default", Reader.STORE, "only RocketMQ's file store is built"),
    _refused("rocksdbCQDoubleWriteEnable", "false", Reader.STORE, NO_ROCKSDB),
    _refused("configManagerVersion", "v1", Reader.BROKER, NO_ROCKSDB),
    _refused("messageStorePlugIn", "", Reader.BROKER, "store plug-ins are Java classes"),
)

WITHOUT_EFFECT: Final = (
    *_rows(
        """
        deleteTopicWithBrokerRegistration=false enableAllTopicList=true enableTopicList=true
        kvConfigPath=~/namesrv/kvConfig.json needWaitForService=false orderMessageEnable=false
        returnOrderTopicConfigToBroker=true supportActingMaster=false waitSecondsForService=45
        """,
        Reader.NAME_SERVER,
    ),
    *_rows(
        "clusterTest=false notifyMinBrokerIdChanged=false productEnvName=center",
        Reader.NAME_SERVER,
        reason=NOT_BUILT,
    ),
    *_rows(
        """
        clientRequestThreadPoolNums=8 clientRequestThreadPoolQueueCapacity=50000
        defaultThreadPoolNums=16 defaultThreadPoolQueueCapacity=10000
        unRegisterBrokerQueueCapacity=3000
        """,
        Reader.NAME_SERVER,
        reason=EVENT_LOOP,
    ),
    *_rows(
        "configBlackList=configBlackList;... rocketmqHome=$ROCKETMQ_HOME",
        Reader.NAME_SERVER,
        Reader.BROKER,
        Reader.CONTROLLER,
    ),
    *_rows(
        "configStorePath=~/namesrv/namesrv.properties scanNotActiveBrokerInterval=5000",
        Reader.NAME_SERVER,
        Reader.CONTROLLER,
    ),
    *_rows(
        """
        bindAddress=0.0.0.0 serverAsyncSemaphoreValue=64 serverChannelMaxIdleTimeSeconds=120
        serverOnewaySemaphoreValue=256 serverSocketBacklog=1024 serverSocketRcvBufSize=0
        serverSocketSndBufSize=0 shutdownWaitTimeSeconds=30
        """,
        Reader.SERVER,
    ),
    *_rows("enableShutdownGracefully=false", Reader.SERVER, reason=ALWAYS_GRACEFUL),
    *_rows(
        "serverCallbackExecutorThreads=0 serverSelectorThreads=3 serverWorkerThreads=8",
        Reader.SERVER,
        reason=EVENT_LOOP,
    ),
    *_rows(
        "serverNettyWorkerGroupEnable=true serverPooledByteBufAllocatorEnable=true",
        Reader.SERVER,
        reason=NO_NETTY,
    ),
    *_rows("useEpollNativeSelector=false", Reader.SERVER, reason=UVLOOP),
    *_rows("listenPort=0", Reader.SERVER, Reader.BROKER),
    *_rows("writeBufferHighWaterMark=0", Reader.SERVER, Reader.CLIENT),
    *_rows("writeBufferLowWaterMark=0", Reader.SERVER, Reader.CLIENT, reason=LOW_MARK),
    *_rows(
        """
        channelNotActiveInterval=60000 clientAsyncSemaphoreValue=65535
        clientChannelMaxIdleTimeSeconds=120 clientCloseSocketIfTimeout=true
        clientOnewaySemaphoreValue=65535 clientSocketRcvBufSize=0 clientSocketSndBufSize=0
        connectTimeoutMillis=3000 enableReconnectForGoAway=true maxReconnectIntervalTimeSeconds=60
        scanAvailableNameSrv=true socksProxyConfig={} useTLS=false
        """,
        Reader.CLIENT,
    ),
    *_rows(
        "clientCallbackExecutorThreads=cpu clientWorkerThreads=4 disableCallbackExecutor=false",
        Reader.CLIENT,
        reason=EVENT_LOOP,
    ),
    *_rows(
        "clientPooledByteBufAllocatorEnable=false disableNettyWorkerGroup=false",
        Reader.CLIENT,
        reason=NO_NETTY,
    ),
    *_rows(
        """
        accountStatsEnable=true accountStatsPrintZeroValues=true
        allowRecallWhenBrokerNotWriteable=true appendAckAsync=false appendCkAsync=false
        asyncSendEnable=true autoCreateSubscriptionGroup=true autoCreateTopicEnable=true
        autoDeleteUnusedStats=true broadcastOffsetExpireMaxSecond=300
        broadcastOffsetExpireSecond=120 brokerClusterName=DefaultCluster brokerConfigPath=
        brokerFastFailureEnable=true brokerHeartbeatInterval=1000 brokerId=0 brokerIP1=local-address
        brokerIP2=local-address brokerName=host-name brokerNotActiveTimeoutMillis=10000
        brokerPermission=6 brokerTopicEnable=true cgColdReadThreshold=3145728
        channelExpiredTimeout=120000 cleanOfflineBrokerInterval=30000
        clearRetryTopicWhenDeleteTopic=true clusterTopicEnable=true coldCtrStrategyEnable=false
        commercialBaseCount=1 commercialBigCount=1 commercialEnable=true commercialSizePerMsg=4096
        commercialTimerCount=1 commercialTransCount=1 compatibleWithOldNameSrv=true
        compressedRegister=false consumerFallbehindThreshold=17179869184
        consumerOffsetUpdateVersionStep=500 defaultMessageRequestMode=PULL
        defaultPopShareQueueNum=-1 defaultTopicQueueNums=8 delayOffsetUpdateVersionStep=200
        disableConsumeIfConsumerReadSlowly=false enableBroadcastOffsetStore=true
        enableCalcFilterBitMap=false enableCreateSysGroup=true enableDetailStat=true
        enableFastChannelEventProcess=false enableLmqStats=false enableMixedMessageType=false
        enableNetWorkFlowControl=false enableNotifyAfterPopOrderLockRelease=true
        enableNotifyBeforePopCalculateLag=true enablePopBatchAck=false enablePopBufferMerge=false
        enablePopLog=false enablePopMessageThreshold=false enablePropertyFilter=false
        enableRegisterProducer=true enableRemoteEscape=false enableRetryTopicV2=false
        enableSingleTopicRegister=false enableSkipLongAwaitingAck=false
        enableSlaveActingMaster=false enableSplitRegistration=false estimateAccumulation=true
        expectConsumerNumUseFilter=32 fetchNamesrvAddrByAddressServer=false
        fetchNameSrvAddrByDnsLookup=false fetchNamesrvAddrInterval=10000
        filterDataCleanTimeSpan=86400000 filterServerNums=0 filterSupportRetry=false
        flushConsumerOffsetHistoryInterval=60000 flushConsumerOffsetInterval=5000 forceRegister=true
        forwardTimeout=3000 globalColdReadThreshold=104857600 highSpeedMode=false
        inBrokerContainer=false initPopOffsetByCheckMsgInMem=true isolateLogEnable=false
        litePullMessageEnable=true loadBalancePollNameServerInterval=30000 lockInStrictMode=false
        longPollingEnable=true maxDelayTime=40 maxErrorRateOfBloomFilter=20 maxPopPollingSize=100000
        maxStatsIdleTimeInMinutes=-1 metricsOtelCardinalityLimit=50000
        msgTraceTopicName=RMQ_SYS_TRACE_TOPIC namesrvAddr=$NAMESRV_ADDR
        notifyConsumerIdsChangedEnable=true popCkMaxBufferSize=200000 popCkOffsetMaxQueueSize=20000
        popCkStayBufferTime=10000 popCkStayBufferTimeOut=3000 popConsumerFSServiceInit=true
        popFromRetryProbability=20 popInflightMessageThreshold=10000
        popLongPollingForceNotifyInterval=800 popPollingMapSize=100000 popPollingSize=1024
        popResponseReturnActualRetryTopic=false popReviveMaxAttemptTimes=16
        popReviveMaxReturnSizePerRead=16384 printChannelGroups=false printChannelGroupsMinNum=5
        realTimeNotifyConsumerChange=true recallMessageEnable=false recoverConcurrently=false
        regionId=DefaultRegion registerBrokerTimeoutMills=24000 registerNameServerPeriod=30000
        rejectPullConsumerEnable=false rejectTransactionMessage=false
        retrieveMessageFromPopRetryTopicV1=true reviveAckWaitMs=180000 reviveInterval=1000
        reviveMaxSlow=3 reviveQueueNum=8 reviveScanTime=10000 sendHeartbeatTimeoutMillis=1000
        serverLoadBalancerEnable=true shortPollingTimeMills=1000 skipPreOnline=false
        skipWhenCKRePutReachMaxTimes=false slaveReadEnable=false splitRegistrationSize=800
        startAcceptSendRequestTimeStamp=0 storeReplyMessageEnable=true
        subscriptionExpiredTimeout=600000 syncBrokerMemberGroupPeriod=1000
        syncBrokerMetadataPeriod=5000 traceOn=true traceTopicEnable=false
        transactionCheckInterval=30000 transactionCheckMax=15 transactionMetricFlushInterval=3000
        transactionOpBatchInterval=3000 transactionOpMsgMaxSize=4096 transactionTimeOut=6000
        transferMsgByHeap=true updateNameServerAddrPeriod=120000 usePIDColdCtrStrategy=true
        useServerSideResetOffset=true useStaticSubscription=false
        validateSystemTopicWhenUpdateTopic=true waitTimeMillsInAckQueue=3000
        waitTimeMillsInAdminBrokerQueue=5000 waitTimeMillsInHeartbeatQueue=31000
        waitTimeMillsInLitePullQueue=5000 waitTimeMillsInPullQueue=5000 waitTimeMillsInSendQueue=200
        waitTimeMillsInTransactionQueue=3000
        """,
        Reader.BROKER,
    ),
    *_rows(
        """
        ackMessageThreadPoolNums=16 ackThreadPoolQueueCapacity=100000 adminBrokerThreadPoolNums=16
        adminBrokerThreadPoolQueueCapacity=10000 clientManagerThreadPoolQueueCapacity=1000000
        clientManageThreadPoolNums=32 consumerManagerThreadPoolQueueCapacity=1000000
        consumerManageThreadPoolNums=32 endTransactionPoolQueueCapacity=100000
        endTransactionThreadPoolNums=max(8+2*cpu,4*senders) heartbeatThreadPoolNums=min(32,cpu)
        heartbeatThreadPoolQueueCapacity=50000 litePullMessageThreadPoolNums=16+2*cpu
        litePullThreadPoolQueueCapacity=100000 loadBalanceProcessorThreadPoolNums=32
        loadBalanceThreadPoolQueueCapacity=100000 processReplyMessageThreadPoolNums=16+2*cpu
        pullMessageThreadPoolNums=16+2*cpu pullThreadPoolQueueCapacity=100000
        putMessageFutureThreadPoolNums=min(cpu,4) putThreadPoolQueueCapacity=10000
        queryMessageThreadPoolNums=8+cpu queryThreadPoolQueueCapacity=20000 recoverThreadPoolNums=32
        replyThreadPoolQueueCapacity=10000 sendMessageThreadPoolNums=min(cpu,4)
        sendThreadPoolQueueCapacity=10000
        """,
        Reader.BROKER,
        reason=EVENT_LOOP,
    ),
    *_rows(
        """
        brokerElectionPriority=2147483647 checkSyncStateSetPeriod=5000 controllerAddr=
        controllerHeartBeatTimeoutMills=10000 fetchControllerAddrByDnsLookup=false
        syncControllerMetadataPeriod=10000
        """,
        Reader.BROKER,
        reason=NO_CONTROLLER,
    ),
    *_rows(
        """
        popConsumerKVServiceEnable=false popConsumerKVServiceInit=false
        popConsumerKVServiceLog=false
        """,
        Reader.BROKER,
        reason=NO_ROCKSDB,
    ),
    *_rows(
        """
        metricGrpcExporterIntervalInMills=60000 metricGrpcExporterTimeOutInMills=3000
        metricLoggingExporterIntervalInMills=10000 metricsExporterType=DISABLE
        metricsGrpcExporterHeader= metricsGrpcExporterTarget= metricsInDelta=false metricsLabel=
        metricsPromExporterHost= metricsPromExporterPort=5557
        """,
        Reader.BROKER,
        Reader.CONTROLLER,
    ),
    *_rows(
        """
        accessMessageInMemoryHotRatio=26 accessMessageInMemoryMaxRatio=40
        allAckInSyncStateSet=false asyncLearner=false autoMessageVersionOnTopicLen=true
        bitMapLengthConsumeQueueExt=64 checkCRCOnRecover=true
        cleanFileForciblyEnable=true cleanResourceInterval=10000
        coldDataFlowControlEnable=false coldDataScanEnable=false
        compactionCqMappedFileSize=10485760 compactionMappedFileSize=104857600
        compactionScheduleInternal=900000 dataReadAheadEnable=true defaultQueryMaxNum=32
        deleteFileBatchMax=10 deleteWhen=04 disappearTimeAfterStart=-1 diskFallRecorded=true
        diskMaxUsedSpaceRatio=75 diskSpaceCleanForciblyRatio=85
        diskSpaceWarningLevelRatio=90 duplicationEnable=false enableAutoInSyncReplicas=false
        enableCleanExpiredOffset=false enableCompaction=true enableConsumeQueueExt=false
        enabledAppendPropCRC=false enableLmq=false enableMultiDispatch=false
        enableScheduleAsyncDeliver=false enableScheduleMessageStats=true fileReservedTime=72
        flushCommitLogLeastPages=4 flushCommitLogThoroughInterval=10000
        flushConsumeQueueThoroughInterval=60000 flushDelayOffsetInterval=10000
        flushDiskType=ASYNC_FLUSH flushIntervalCommitLog=500 flushIntervalConsumeQueue=1000
        forceVerifyPropCRC=false haFlowControlEnable=false haHousekeepingInterval=20000
        haListenPort=10912 haMasterAddress= haMaxGapNotInSync=268435456
        haMaxTimeSlaveNotCatchup=15000 haSendHeartbeatInterval=5000
        haSlaveFallbehindMax=268435456 haTransferBatchSize=32768 inSyncReplicas=1
        logicalDiskSpaceCleanForciblyThreshold=0.8 mappedFileSizeCommitLog=1073741824
        mappedFileSizeConsumeQueue=6000000 mappedFileSizeConsumeQueueExt=50331648
        mappedFileSizeTimerLog=104857600 mapperFileSizeBatchConsumeQueue=13800000
        maxAsyncPutMessageRequests=5000 maxChecksumRange=1073741824
        maxConsumeQueueScan=20000 maxFilterMessageSize=16000 maxHashSlotNum=5000000
        maxHaTransferByteInSecond=104857600 maxIndexNum=20000000 maxLmqConsumeQueueNum=20000
        maxMessageSize=4194304 maxMsgsNumBatch=64 maxOffsetMapSize=104857600
        maxSlaveResendLength=268435456 maxTopicLength=127
        maxTransferBytesOnMessageInDisk=65536 maxTransferBytesOnMessageInMemory=262144
        maxTransferCountOnMessageInDisk=8 maxTransferCountOnMessageInMemory=32
        messageDelayLevel=1s...2h messageIndexEnable=true minInSyncReplicas=1
        offsetCheckInSlave=false pullBatchMaxMessageCount=160 putMessageTimeout=8000
        readOnlyCommitLogStorePaths= replicasPerDiskPartition=1 sampleCountThreshold=5000
        sampleSteps=32 scheduleAsyncDeliverMaxPendingLimit=2000
        scheduleAsyncDeliverMaxResendNum2Blocked=3 searchBcqByCacheEnable=true
        slaveTimeout=3000 storePathBrokerIdentity= storePathCommitLog= storePathEpochFile=
        storePathRootDir=~/store syncFlushTimeout=5000 syncFromLastFile=false
        syncMasterFlushOffsetWhenStartup=false timerColdDataCheckIntervalMs=60000
        timerCongestNumEachSlot=2147483647 timerEnableCheckMetrics=true
        timerEnableRetryUntilSuccess=false timerFlushIntervalMs=1000
        timerInterceptDelayLevel=false timerMaxDelaySec=259200
        timerMetricSmallThreshold=1000000 timerPrecisionMs=1000
        timerProgressLogIntervalMs=10000 timerRollWindowSlot=172800
        timerSkipUnknownError=false timerStopEnqueue=false timerWheelEnable=true
        totalReplicas=1 travelCqFileNumWhenGetMessage=1
        """,
        Reader.STORE,
    ),
    *_rows(
        """
        commitCommitLogLeastPages=4 commitCommitLogThoroughInterval=200
        commitIntervalCommitLog=200 fastFailIfNoBufferInStorePool=false
        readUnCommitted=false transientStorePoolEnable=false transientStorePoolSize=5
        wakeCommitWhenPutMessage=true
        """,
        Reader.STORE,
        reason=NO_POOL,
    ),
    *_rows(
        """
        flushLeastPagesWhenWarmMapedFile=4096 warmMapedFileEnable=false
        """,
        Reader.STORE,
        reason=ALWAYS_WARM,
    ),
    *_rows(
        """
        debugLockEnable=false osPageCacheBusyTimeOutMills=1000 putMsgIndexHightWater=600000
        spinLockCollisionRetreatOptimalDegree=1000 topicQueueLockNum=32 useABSLock=false
        useReentrantLockWhenPutMessage=true
        """,
        Reader.STORE,
        reason=ONE_LOCK,
    ),
    *_rows(
        """
        cleanSwapedMapInterval=300000 commitLogForceSwapMapInterval=43200000
        commitLogSwapMapInterval=3600000 commitLogSwapMapReserveFileNum=100
        logicQueueForceSwapMapInterval=43200000 logicQueueSwapMapInterval=3600000
        logicQueueSwapMapReserveFileNum=20 mappedFileSwapEnable=true
        """,
        Reader.STORE,
        reason=FILES_REST,
    ),
    *_rows(
        """
        deleteCommitLogFilesInterval=100 deleteConsumeQueueFilesInterval=100
        destroyMapedFileIntervalForcibly=120000 redeleteHangedFileInterval=120000
        """,
        Reader.STORE,
        reason=READERS_KEEP,
    ),
    *_rows(
        """
        correctLogicMinOffsetForceInterval=300000 correctLogicMinOffsetSleepInterval=1
        dispatchCqCacheNum=4096 dispatchFromSenderThread=false enableAsyncReput=true
        enableBuildConsumeQueueConcurrently=false flushConsumeQueueLeastPages=2
        maxBatchDeleteFilesNum=50 maxRecoveryCommitlogFiles=30 messageIndexSafe=false
        putConsumeQueueDataByFileChannel=true recheckReputOffsetFromCq=false
        """,
        Reader.STORE,
        reason=QUEUES_FOLLOW,
    ),
    *_rows(
        """
        flushCommitLogTimed=true wakeFlushWhenPutMessage=false
        """,
        Reader.STORE,
        reason=FLUSHED_WHEN_ASKED,
    ),
    *_rows(
        "storePathConsumeQueue= storePathIndex= storeCheckpoint= abortFile=",
        Reader.STORE,
        reason=NEVER_READ,
    ),
    *_rows("mapedFileSizeCommitLog=", Reader.STORE, reason="write mappedFileSizeCommitLog"),
    *_rows("mapedFileSizeConsumeQueue=", Reader.STORE, reason="write mappedFileSizeConsumeQueue"),
    *_rows(
        "timerCheckMetricsWhen=05 timerEnableDisruptor=false timerStopDequeue=false "
        "timerWarmEnable=false",
        Reader.STORE,
    ),
    *_rows(
        """
        batchDispatchRequestThreadPoolNums=16 compactionThreadNum=6 dispatchCqThreads=10
        timerGetMessageThreadNum=3 timerPutMessageThreadNum=3
        """,
        Reader.STORE,
        reason=EVENT_LOOP,
    ),
    *_rows(
        """
        dLegerGroup= dLegerPeers= dLegerSelfId= enableBatchPush=false preferredLeaderId=
        storePathDLedgerCommitLog=
        """,
        Reader.STORE,
        reason=NO_DLEDGER,
    ),
    *_rows(
        """
        bottomMostCompressionTypeForConsumeQueueStore=zstd cleanRocksDBDirtyCQIntervalMin=60
        enableRocksDBLog=false memTableFlushInterval=3600000 memTableFlushIntervalMs=3600000
        realTimePersistRocksDBConfig=true rocksdbCompressionType=lz4 rocksdbFlushWalFrequency=1024
        rocksdbWalFileRollingThreshold=1073741824 statRocksDBCQIntervalSec=10
        """,
        Reader.STORE,
        reason=NO_ROCKSDB,
    ),
    *_rows(
        """
        aclCacheExpiredSecond=600 aclCacheMaxNum=1000 aclCacheRefreshSecond=60 authConfigPath=
        authenticationMetadataProvider= authenticationProvider= authenticationStrategy=
        authenticationWhitelist= authorizationMetadataProvider= authorizationProvider=
        authorizationStrategy= authorizationWhitelist= clusterName= configName=
        initAuthenticationUser= innerClientAuthenticationCredentials= migrateAuthFromV1Enabled=false
        statefulAuthenticationCacheExpiredSecond=60 statefulAuthenticationCacheMaxNum=10000
        statefulAuthorizationCacheExpiredSecond=60 statefulAuthorizationCacheMaxNum=10000
        userCacheExpiredSecond=600 userCacheMaxNum=1000 userCacheRefreshSecond=60
        """,
        Reader.ACCESS,
        reason=NO_ACCESS_CONTROL,
    ),
    *_rows(
        """
        controllerDLegerGroup= controllerDLegerPeers= controllerDLegerSelfId=
        controllerRequestThreadPoolQueueCapacity=50000 controllerStorePath=
        controllerThreadPoolNums=16 controllerType=DLedger electMasterMaxRetryCount=3
        enableElectUncleanMaster=false jraftConfig= mappedFileSize=1073741824
        notifyBrokerRoleChanged=true processReadEvent=false scanInactiveMasterInterval=5000
        """,
        Reader.CONTROLLER,
        reason=NO_CONTROLLER,
    ),
    *_rows("connectWhichBroker=127.0.0.1:10911 filterServerIP=local-address", Reader.FILTER_SERVER),
    *_rows(
        """
        fsServerAsyncSemaphoreValue=2048 fsServerCallbackExecutorThreads=64 fsServerWorkerThreads=64
        """,
        Reader.FILTER_SERVER,
        reason=EVENT_LOOP,
    ),
    *_rows(
        """
        clientUploadFilterClassEnable=true
        filterClassRepertoryUrl=http://fsrep.tbsite.net/filterclass
        """,
        Reader.FILTER_SERVER,
        reason="code from the network never runs; filters are installed as packages",
    ),
    *_rows(
        "compressMsgBodyOverHowmuch=8192 zipCompressLevel=5",
        Reader.FILTER_SERVER,
        reason="messages are passed on as they are stored",
    ),
)

ROCKETMQ_OPTIONS: Final = {row.name: row for row in (*REFUSED, *WITHOUT_EFFECT)}
