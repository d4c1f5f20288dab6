import { postgresTarget } from '../../schedules/targets/postgres.ts'
import { playSchedules } from './schedules.ts'

playSchedules(postgresTarget)
