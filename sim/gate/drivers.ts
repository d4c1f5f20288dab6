import { mutation, type Mutation } from './mutation.ts'

/** Bugs around connections: those for subscriptions, and those of a real driver. */
export const DRIVER_BUGS: readonly Mutation[] = [
  mutation(
    'node-redis forgets a channel that is subscribed again while it is being left',
    'found by attacks: C',
    'subscriptions of node-redis',
    'src/engines/redis/drivers/node-redis-subscriber.js',
    'unsubscribe: (channel) => copy[unsubscribe](channel, heard),',
    'unsubscribe: (channel) => copy[unsubscribe](channel),',
  ),
  mutation(
    'a subscriber connection that falls silent is never noticed',
    'found by attacks: F',
    'subscriptions',
    'src/engines/redis/drivers/subscriber-connection.js',
    'await this.#prove();',
    '',
  ),
  mutation(
    'an error that ioredis tells counts as an empty answer',
    'own',
    'ioredis',
    'src/engines/redis/drivers/ioredis-command.js',
    'this.#settle(explain(error), undefined);',
    'this.#settle(undefined, null);',
  ),
]
