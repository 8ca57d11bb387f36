(* The stream, the logits and the scores as sums over paths, for all numbers of layers and heads. *)

From mathcomp Require Import all_ssreflect all_algebra.
From Circuits Require Import Heads.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Import GRing.Theory.
Local Open Scope ring_scope.

(* A path is the list of the heads that it takes, from the first layer to the last.  In each layer it takes
   the residual (and the list is not extended) or one head.  What a head is does not matter here: below it is a pair
   of matrices, in Unique.v a label. *)
Fixpoint paths (T : Type) (layers : seq (seq T)) : seq (seq T) :=
  if layers is heads :: rest
  then paths rest ++ [seq h :: p | h <- heads, p <- paths rest]
  else [:: [::]].

(* Two layers of one head each: the direct path, each head by itself, and the virtual head. *)
Example paths_of_two_layers T (a b : T) : paths [:: [:: a]; [:: b]] = [:: [::]; [:: b]; [:: a]; [:: a; b]].
Proof. by []. Qed.

Section Paths.

Variable R : comRingType.
Variables n d : nat.

Local Notation head := (head R n d).
Local Notation stream_type := 'M[R]_(n, d).

Implicit Types (X : stream_type) (layers : seq (seq head)) (p q : seq head).

(* A layer adds what its heads write to what it reads. *)
Definition layer (heads : seq head) X : stream_type := X + \sum_(h <- heads) act h X.

(* The stream after the layers: the first of the list reads X. *)
Fixpoint stream layers X : stream_type :=
  if layers is heads :: rest then stream rest (layer heads X) else X.

(* The virtual head of a path: A_p = A_k ... A_1 and W_p = W_k ... W_1. *)
Fixpoint virtual_head p : head :=
  if p is h :: rest then after (virtual_head rest) h else identity_head R n d.

(* A path acts as its heads do, one after the other: the mixed product, path by path. *)
Theorem path_acts_by_its_heads p X :
  act (virtual_head p) X = foldl (fun Y h => act h Y) X p.
Proof.
elim: p X => [|h p IH] X /=; first exact: identity_head_acts.
by rewrite -act_after IH.
Qed.

(* The theorem: X_L = sum over the paths p of  A_p X_0 W_p^T. *)
Theorem stream_is_sum_over_paths layers X :
  stream layers X
  = \sum_(p <- paths layers) (virtual_head p).1 *m X *m (virtual_head p).2^T.
Proof.
rewrite -[RHS]/(\sum_(p <- paths layers) act (virtual_head p) X).
elim: layers X => [|heads rest IH] X /=.
  (* No layer: the one path is the direct path. *)
  by rewrite big_seq1 identity_head_acts.
(* The layers above read the output of the first; each path is linear in it. *)
rewrite IH /layer big_cat big_allpairs_dep exchange_big /= -big_split /=.
apply: eq_bigr => p _.
rewrite actD act_sum; congr (_ + _).
by apply: eq_bigr => h _; rewrite act_after.
Qed.

(* Linear in what enters the stream, the patterns held fixed: sums and multiples of streams. *)
Theorem stream_is_linear layers : linear (stream layers).
Proof.
move=> a X Y; rewrite !stream_is_sum_over_paths scaler_sumr -big_split /=; apply: eq_bigr => p _.
by rewrite mulmxDr mulmxDl -scalemxAr -scalemxAl.
Qed.

Lemma stream_adds layers X Y : stream layers (X + Y) = stream layers X + stream layers Y.
Proof. by rewrite -[X]scale1r stream_is_linear !scale1r. Qed.

(* With the identity head added to the heads of a layer, the residual is a head like the others. *)
Theorem identity_head_is_the_residual heads X :
  layer heads X = \sum_(h <- identity_head R n d :: heads) act h X.
Proof. by rewrite big_cons identity_head_acts. Qed.

(* The logits, from the tokens t: end to end,  sum over p of  A_p t (W_U W_p W_E)^T. *)
Theorem logits_are_sum_over_paths layers v_in v_out
    (t : 'M[R]_(n, v_in)) (W_E : 'M[R]_(d, v_in)) (W_U : 'M[R]_(v_out, d)) :
  stream layers (t *m W_E^T) *m W_U^T
  = \sum_(p <- paths layers)
      (virtual_head p).1 *m t *m (W_U *m (virtual_head p).2 *m W_E)^T.
Proof.
rewrite stream_is_sum_over_paths mulmx_suml; apply: eq_bigr => p _.
by rewrite !trmx_mul !mulmxA.
Qed.

(* What reads a stream twice, once as query and once as key, takes a sum on both sides apart. *)
Lemma scores_of_sums I J (r : seq I) (s : seq J) (F : I -> stream_type) (G : J -> stream_type) (W : 'M[R]_d) :
  (\sum_(i <- r) F i) *m W *m (\sum_(j <- s) G j)^T
  = \sum_(i <- r) \sum_(j <- s) F i *m W *m (G j)^T.
Proof.
rewrite !mulmx_suml; apply: eq_bigr => i _.
by rewrite linear_sum mulmx_sumr.
Qed.

(* The scores  X W_QK X^T  of a head that reads the stream after these layers: a double sum over paths,
   p on the query side and q on the key side. *)
Theorem scores_are_double_sum layers X (W_QK : 'M[R]_d) :
  stream layers X *m W_QK *m (stream layers X)^T
  = \sum_(p <- paths layers) \sum_(q <- paths layers)
      (virtual_head p).1 *m X *m (virtual_head p).2^T *m W_QK
        *m (virtual_head q).2 *m X^T *m (virtual_head q).1^T.
Proof.
rewrite stream_is_sum_over_paths scores_of_sums.
apply: eq_bigr => p _; apply: eq_bigr => q _.
by rewrite !trmx_mul trmxK !mulmxA.
Qed.

(* The same from the tokens: the end-to-end QK circuit  W_E^T W_p^T W_QK W_q W_E  stands in the middle. *)
Theorem scores_from_tokens layers v (t : 'M[R]_(n, v)) (W_E : 'M[R]_(d, v)) (W_QK : 'M[R]_d) :
  let X := t *m W_E^T in
  stream layers X *m W_QK *m (stream layers X)^T
  = \sum_(p <- paths layers) \sum_(q <- paths layers)
      (virtual_head p).1 *m t
        *m (W_E^T *m (virtual_head p).2^T *m W_QK *m (virtual_head q).2 *m W_E)
        *m t^T *m (virtual_head q).1^T.
Proof.
rewrite /= scores_are_double_sum; apply: eq_bigr => p _; apply: eq_bigr => q _.
by rewrite !trmx_mul trmxK !mulmxA.
Qed.

(* The direct path is one of the paths; all others take a head.  So every sum over paths splits. *)
Lemma sum_over_paths_splits (V : zmodType) layers (F : seq head -> V) :
  \sum_(p <- paths layers) F p = F [::] + \sum_(p <- paths layers | ~~ nilp p) F p.
Proof.
elim: layers F => [|heads rest IH] F /=; first by rewrite big_seq1 big_cons big_nil addr0.
rewrite !big_cat /= IH -!addrA; congr (_ + (_ + _)).
by rewrite [RHS]big_mkcond !big_allpairs_dep.
Qed.

(* The four families of scores: no composition, Q-composition, K-composition, both. *)
Theorem scores_in_four_families layers X (W_QK : 'M[R]_d) :
  let term p q := act (virtual_head p) X *m W_QK *m (act (virtual_head q) X)^T in
  stream layers X *m W_QK *m (stream layers X)^T
  = X *m W_QK *m X^T
    + \sum_(p <- paths layers | ~~ nilp p) term p [::]
    + \sum_(q <- paths layers | ~~ nilp q) term [::] q
    + \sum_(p <- paths layers | ~~ nilp p) \sum_(q <- paths layers | ~~ nilp q) term p q.
Proof.
move=> term.
have -> : stream layers X *m W_QK *m (stream layers X)^T
          = \sum_(p <- paths layers) \sum_(q <- paths layers) term p q.
  by rewrite stream_is_sum_over_paths scores_of_sums.
have -> : X *m W_QK *m X^T = term [::] [::] by rewrite /term identity_head_acts.
have splits p : \sum_(q <- paths layers) term p q
                = term p [::] + \sum_(q <- paths layers | ~~ nilp q) term p q.
  exact: sum_over_paths_splits.
rewrite sum_over_paths_splits splits [X in _ + X](eq_bigr _ (fun p _ => splits p)).
by rewrite big_split /= addrACA !addrA.
Qed.

End Paths.

Section PatternsOfPaths.

Variable R : comRingType.
Variables n d : nat.

Implicit Types (A B : 'M[R]_n) (p : seq (head R n d)).

Definition ones : 'cV[R]_n := const_mx 1.
Definition rows_sum_to_one A := A *m ones == ones.
Definition causal A := [forall i : 'I_n, forall j : 'I_n, (i < j)%N ==> (A i j == 0)].

Lemma causalP A : reflect (forall i j : 'I_n, (i < j)%N -> A i j = 0) (causal A).
Proof.
apply: (iffP forallP) => [H i j ij | H i].
  by move/forallP: (H i) => /(_ j) /implyP /(_ ij) /eqP.
by apply/forallP => j; apply/implyP => /H ->.
Qed.

(* Rows of the pattern of a virtual head sum to one where those of its heads do. *)
Theorem path_rows_sum_to_one p :
  all (fun h => rows_sum_to_one h.1) p -> rows_sum_to_one (virtual_head p).1.
Proof.
elim: p => [|h p IH] /=; first by rewrite /rows_sum_to_one mul1mx.
by case/andP => /eqP h1 /IH /eqP p1; rewrite /rows_sum_to_one -mulmxA h1 p1.
Qed.

(* No token sees a later one through a virtual head where none does through its heads. *)
Theorem path_is_causal p : all (fun h => causal h.1) p -> causal (virtual_head p).1.
Proof.
elim: p => [|h p IH] /=.
  by move=> _; apply/causalP => i j; rewrite mxE; case: eqP => // ->; rewrite ltnn.
case/andP => /causalP h0 /IH /causalP p0; apply/causalP => i j ij.
rewrite mxE big1 // => k _; case: (ltnP i k) => ik; first by rewrite p0 ?mul0r.
by rewrite h0 ?mulr0 // (leq_ltn_trans ik).
Qed.

End PatternsOfPaths.
