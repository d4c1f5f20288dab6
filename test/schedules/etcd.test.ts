import { etcdTarget } from '../../schedules/targets/etcd.ts'
import { playSchedules } from './schedules.ts'

playSchedules(etcdTarget)
