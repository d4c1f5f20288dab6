export type { Fence, Fenced, Guard, GuardEvent, GuardOptions } from './guard.ts'
export type { ColumnFence, ColumnOptions } from './column.ts'
export type {
  Isolation,
  RunStatement,
  SqlGuard,
  SqlGuardOptions,
  TransactionalLike,
  TransactionOptions,
} from './sql.ts'
export { postgresGuard } from './postgres.ts'
export type { PgPoolLike, PostgresClient, PostgresJsLike } from './postgres-clients.ts'
export { mariadbGuard } from './mariadb.ts'
export type { MariadbClient, MariadbPoolLike } from './mariadb-clients.ts'
export { redisGuard } from './redis.ts'
export type { RedisGuard, RedisGuardOptions, ScriptInput, SetOptions } from './redis.ts'
export { mongodbGuard } from './mongodb.ts'
export type { MongoDbLike, MongodbGuard, MongodbGuardOptions } from './mongodb.ts'
export type { CollectionLike, FencedDocuments, UpdateOptions } from './mongodb-documents.ts'
export { fencedErrors, fencedHandler, fencedMiddleware, fencedOf, fencingHeaders, problemOf } from './http.ts'
export type { FetchRequest, HttpGuardOptions, Next, NodeRequest, Problem } from './http.ts'
export { casGuard } from './cas.ts'
export type { CasGuard, CasGuardOptions, CasStore, FencedValue, Versioned } from './cas.ts'
export { objectStore } from './object-store.ts'
export type { ObjectRequest, ObjectResponse, ObjectStoreOptions } from './object-store.ts'
export { fileGuard, type FileGuard } from './file.ts'
export { ForeignTokenError, GuardError, StaleTokenError } from '../errors.ts'
