export {
  ExecutionError,
  LockError,
  ResourceLockedError,
  type ClientExecutionResult,
  type ExecutionResult,
  type ExecutionStats,
} from './errors.ts'
export { Lock } from './lock.ts'
export { Redlock, Redlock as default, type RedlockAbortSignal } from './redlock.ts'
export type { RedlockInstanceSettings, RedlockSettings, RedlockSettings as Settings } from './settings.ts'
export type { Version4Disposer, Version4Lock } from './version-4.ts'
