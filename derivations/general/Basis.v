(* Freedom of basis: what does not change when the stream, or the space inside a head, is written in another basis. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads Paths.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory.
Local Open Scope ring_scope.

Section ModelSpace.

Variable R : comRingType.
Variables n d : nat.

Local Notation head := (head R n d).

(* The change of basis: any invertible T, not only rotations; T_inv is its inverse. *)
Variables T T_inv : 'M[R]_d.
Hypothesis T_left : T_inv *m T = 1%:M.

(* An inverse on one side is one on the other: the matrices are square. *)
Lemma T_right : T *m T_inv = 1%:M.
Proof. exact: mulmx1C T_left. Qed.

Implicit Types (X : 'M[R]_(n, d)) (layers : seq (seq head)) (p q : seq head).

(* What writes into the stream is multiplied by T, what reads it by the inverse. *)
Definition writes k (W : 'M[R]_(d, k)) := T *m W.
Definition reads k (W : 'M[R]_(k, d)) := W *m T_inv.

(* W_OV = W_O W_V writes and reads; W_QK = W_Q^T W_K reads twice. *)
Definition new_head (h : head) : head := (h.1, writes (reads h.2)).
Definition new_layers layers := [seq [seq new_head h | h <- heads] | heads <- layers].
Definition new_W_QK (W_QK : 'M[R]_d) := (T_inv)^T *m W_QK *m T_inv.

Lemma reads_writes k m (W : 'M[R]_(k, d)) (V : 'M[R]_(d, m)) : reads W *m writes V = W *m V.
Proof. by rewrite /reads /writes mulmxA -(mulmxA W) T_left mulmx1. Qed.

(* These are the changes of the parts of a head. *)
Theorem new_OV k (W_O : 'M[R]_(d, k)) (W_V : 'M[R]_(k, d)) :
  writes W_O *m reads W_V = writes (reads (W_O *m W_V)).
Proof. by rewrite /writes /reads !mulmxA. Qed.

Theorem new_QK k (W_Q W_K : 'M[R]_(k, d)) : (reads W_Q)^T *m reads W_K = new_W_QK (W_Q^T *m W_K).
Proof. by rewrite /reads /new_W_QK trmx_mul !mulmxA. Qed.

(* A path from a writer to a writer, seen in the new basis. *)
Lemma new_head_writes h k (V : 'M[R]_(d, k)) : (new_head h).2 *m writes V = writes (h.2 *m V).
Proof. by rewrite /= /writes -mulmxA reads_writes. Qed.

Lemma new_W_QK_reads_writes k m (U : 'M[R]_(d, k)) (V : 'M[R]_(d, m)) (W_QK : 'M[R]_d) :
  (writes U)^T *m new_W_QK W_QK *m writes V = U^T *m W_QK *m V.
Proof.
rewrite /writes /new_W_QK trmx_mul !mulmxA -(mulmxA _ T^T) -trmx_mul T_left trmx1 mulmx1.
by rewrite -(mulmxA _ T_inv) T_left mulmx1.
Qed.

Lemma new_head_acts h X : act (new_head h) (X *m T^T) = act h X *m T^T.
Proof.
rewrite /act /= /writes /reads !trmx_mul !mulmxA; congr (_ *m _ *m _).
by rewrite -(mulmxA _ T^T) -trmx_mul T_left trmx1 mulmx1.
Qed.

(* The virtual head of a path changes as a head does. *)
Lemma new_virtual_head p : virtual_head (map new_head p) = new_head (virtual_head p).
Proof.
elim: p => [|h p IH] /=; first by rewrite /new_head /writes /reads /= mul1mx T_right.
by rewrite IH /after /new_head /= /writes /reads !mulmxA -(mulmxA _ T_inv T) T_left mulmx1.
Qed.

(* The whole stream is written in the new basis. *)
Theorem stream_in_new_basis layers X : stream (new_layers layers) (X *m T^T) = stream layers X *m T^T.
Proof.
elim: layers X => [|heads rest IH] X //=.
rewrite -IH /layer mulmxDl mulmx_suml big_map; congr (stream _ (_ + _)).
by apply: eq_bigr => h _; rewrite new_head_acts.
Qed.

(* Every end-to-end term of the logits is unchanged: the matrix W_U W_p W_E of each path. *)
Theorem logit_terms_unchanged p v_in v_out (W_E : 'M[R]_(d, v_in)) (W_U : 'M[R]_(v_out, d)) :
  reads W_U *m (virtual_head (map new_head p)).2 *m writes W_E = W_U *m (virtual_head p).2 *m W_E.
Proof. by rewrite new_virtual_head -mulmxA new_head_writes reads_writes mulmxA. Qed.

(* And the logits. *)
Theorem logits_unchanged layers v_in v_out
    (t : 'M[R]_(n, v_in)) (W_E : 'M[R]_(d, v_in)) (W_U : 'M[R]_(v_out, d)) :
  stream (new_layers layers) (t *m (writes W_E)^T) *m (reads W_U)^T = stream layers (t *m W_E^T) *m W_U^T.
Proof.
rewrite /writes trmx_mul mulmxA stream_in_new_basis /reads trmx_mul !mulmxA.
by rewrite -(mulmxA _ T^T) -trmx_mul T_left trmx1 mulmx1.
Qed.

(* Every end-to-end term of the scores is unchanged: the matrix W_E^T W_p^T W_QK W_q W_E of each pair of paths. *)
Theorem score_terms_unchanged p q v (W_E : 'M[R]_(d, v)) (W_QK : 'M[R]_d) :
  (writes W_E)^T *m (virtual_head (map new_head p)).2^T *m new_W_QK W_QK
    *m (virtual_head (map new_head q)).2 *m writes W_E
  = W_E^T *m (virtual_head p).2^T *m W_QK *m (virtual_head q).2 *m W_E.
Proof.
rewrite !new_virtual_head -mulmxA new_head_writes -[(writes W_E)^T *m _]trmx_mul new_head_writes.
by rewrite new_W_QK_reads_writes trmx_mul !mulmxA.
Qed.

(* And the scores. *)
Theorem scores_unchanged layers v (t : 'M[R]_(n, v)) (W_E : 'M[R]_(d, v)) (W_QK : 'M[R]_d) :
  let new := stream (new_layers layers) (t *m (writes W_E)^T) in
  let old := stream layers (t *m W_E^T) in
  new *m new_W_QK W_QK *m new^T = old *m W_QK *m old^T.
Proof.
move=> new old.
have -> : new = (writes old^T)^T by rewrite /new /writes !trmx_mul trmxK mulmxA stream_in_new_basis.
by rewrite trmxK new_W_QK_reads_writes trmxK.
Qed.

End ModelSpace.

Section HeadSpace.

Variable R : comRingType.
Variables d k : nat.

(* Any invertible change of basis inside a head (queries and keys may have another than values). *)
Variables S S_inv : 'M[R]_k.
Hypothesis S_left : S_inv *m S = 1%:M.

Theorem OV_unchanged_inside (W_O : 'M[R]_(d, k)) (W_V : 'M[R]_(k, d)) :
  (W_O *m S_inv) *m (S *m W_V) = W_O *m W_V.
Proof. by rewrite mulmxA -(mulmxA W_O) S_left mulmx1. Qed.

Theorem QK_unchanged_inside (W_Q W_K : 'M[R]_(k, d)) :
  (S *m W_Q)^T *m ((S_inv)^T *m W_K) = W_Q^T *m W_K.
Proof. by rewrite trmx_mul mulmxA -(mulmxA _ S^T) -trmx_mul S_left trmx1 mulmx1. Qed.

End HeadSpace.
