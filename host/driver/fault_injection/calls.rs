//! The driver calls that are counted.

macro_rules! calls {
    ($($call:ident $name:literal;)+) => {
        /// A driver call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Call {
            $($call),+
        }

        impl Call {
            /// The name of the driver function.
            pub fn name(self) -> &'static str {
                match self {
                    $(Call::$call => $name),+
                }
            }
        }
    };
}

calls! {
    Info "cuMemGetInfo";
    Alloc "cuMemAlloc";
    Free "cuMemFree";
    VirtualMemory "cuMemGetAllocationGranularity";
    Reserve "cuMemAddressReserve";
    Unreserve "cuMemAddressFree";
    Create "cuMemCreate";
    Release "cuMemRelease";
    Map "cuMemMap";
    Allow "cuMemSetAccess";
    Unmap "cuMemUnmap";
    NewPool "cuMemPoolCreate";
    DefaultPool "cuDeviceGetDefaultMemPool";
    CurrentPool "cuDeviceGetMemPool";
    PoolAlloc "cuMemAllocFromPoolAsync";
    PoolFree "cuMemFreeAsync";
    PoolTrim "cuMemPoolTrimTo";
    PoolGet "cuMemPoolGetAttribute";
    PoolSet "cuMemPoolSetAttribute";
    Synchronize "cuCtxSynchronize";
    Write "cuMemcpyHtoD";
    Read "cuMemcpyDtoH";
    Fill "cuMemsetD8";
    NewStream "cuStreamCreate";
    StreamWrite "cuMemcpyHtoDAsync";
    StreamRead "cuMemcpyDtoHAsync";
    StreamCopy "cuMemcpyDtoDAsync";
    StreamFill "cuMemsetD8Async";
    StreamSynchronize "cuStreamSynchronize";
    StreamQuery "cuStreamQuery";
    Launch "cuLaunchKernel";
    Record "cuEventRecord";
    Wait "cuStreamWaitEvent";
    EventQuery "cuEventQuery";
    EventSynchronize "cuEventSynchronize";
    Module "cuModuleLoadDataEx";
}
