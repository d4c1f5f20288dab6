import { valkeyTarget } from '../../schedules/targets/redis.ts'
import { playSchedules } from './schedules.ts'

playSchedules(valkeyTarget)
